"""Options of the command line from the fields of settings: an option is written down once, where its setting is.

`with_settings` gives a command the options of the settings of tasks, of `Network` and of `Recipe`. They are read when
the command line is built, so that a task that was registered meanwhile has its options too.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import cache, update_wrapper
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from flexmdm.settings import flags_of, options_of
from flexmdm.tasks.registry import settings_class, task_names

Given = dict[str, dict[str, Any]]  # what was given of each section, by field
_TITLES = {"task": "Task", "network": "Network", "recipe": "Recipe"}  # of the options of each section


def with_settings(
    tasks: Callable[[], list[str]] = task_names, leave_out: tuple[str, ...] = (), defaults: Mapping[str, str] = {}
) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator for a command that takes ``given``: what was given of each section, by field.

    Args:
        tasks: names of the tasks whose settings are options.
        leave_out: fields that the command has no option for.
        defaults: what the help says to be the default of a field in this command.
    """
    return lambda command: Command(command, tasks, leave_out, defaults)


class Command:
    """A command whose signature has an option for each setting, as typer reads it."""

    def __init__(
        self,
        command: Callable[..., Any],
        tasks: Callable[[], list[str]],
        leave_out: tuple[str, ...],
        defaults: Mapping[str, str],
    ) -> None:
        update_wrapper(self, command)
        self.command, self.tasks, self.leave_out, self.defaults = command, tasks, leave_out, defaults
        self._made: tuple[list[tuple[str, type]], Signature] | None = None  # typer asks again and again

    def __call__(self, **values: Any) -> Any:
        given: Given = {section: {} for section in _TITLES}
        for name, (section, _, one) in self._settings().items():
            value, parse = values.pop(name), one.metadata["parse"]
            if value is not None:
                given[section][one.name] = value if parse is None else parse(value)
        return self.command(**values, given=given)

    @property
    def __signature__(self) -> Signature:
        """Return the parameters of the command itself, and one for each setting."""
        classes = self._classes()
        if self._made is None or self._made[0] != classes:
            own = [one for name, one in signature(self.command, eval_str=True).parameters.items() if name != "given"]
            made = [self._parameter(name, *one) for name, one in self._settings().items()]
            self._made = classes, Signature([*own, *made])
        return self._made[1]

    def _classes(self) -> list[tuple[str, type]]:
        from flexmdm.training.recipe import Network, Recipe

        return [*(("task", settings_class(name)) for name in self.tasks()), ("network", Network), ("recipe", Recipe)]

    def _settings(self) -> dict[str, tuple[str, type, Field]]:
        """Return the section, the class and the field of each option; of a field of several tasks, the first."""
        found: dict[str, tuple[str, type, Field]] = {}
        for section, settings in self._classes():
            for one in options_of(settings).values():
                if one.name not in self.leave_out:
                    found.setdefault(f"{section}_{one.name}", (section, settings, one))
        return found

    def _parameter(self, name: str, section: str, settings: type, one: Field) -> Parameter:
        kind: Any = str if one.metadata["parse"] else _type_of(_types_of(settings)[one.name])
        bounds = {bound: one.metadata[bound] for bound in ("min", "max")}
        help = self._help_of_tasks(one) if section == "task" else one.metadata["help"]
        if one.name in self.defaults:
            help = help.partition(" [default: ")[0] + f" [default: {self.defaults[one.name]}]"
        option = typer.Option(*flags_of(one), help=help, rich_help_panel=_TITLES[section], **bounds)
        return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])

    def _help_of_tasks(self, one: Field) -> str:
        """Return the help of a field, or each help that it has with the tasks that it is for."""
        helps: dict[str, list[str]] = {}
        for task in self.tasks():
            if one.name in options_of(settings_class(task)):
                help = options_of(settings_class(task))[one.name].metadata["help"]
                helps.setdefault(help, []).append(task)
        if len(self.tasks()) == 1:
            return one.metadata["help"]
        return " ".join(f"{', '.join(tasks)}: {help}" for help, tasks in helps.items())


@cache
def _types_of(settings: type) -> dict[str, Any]:
    return get_type_hints(settings)


def _type_of(hint: Any) -> type:
    """Return the type of the values of an option: that of a setting, without None and without a list of choices."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    return str if get_origin(hint) is Literal else hint


def check_task_options(task: str, given: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    """Raise if the settings of a task do not have all fields that were given, and say which tasks do.

    Args:
        task: its name.
        given: values by field.
        spellings: how the fields are given that no option is generated for.
    """
    settings_class(task)  # raises if there is no such task
    for field in given:
        tasks = [name for name in task_names() if has_setting(name, field)]
        if task not in tasks:
            option = spellings.get(field) or flags_of(options_of(settings_class(tasks[0]))[field])[0]
            raise ValueError(f"{option} is for --task {' or '.join(tasks)}, and this is {task}: leave it out")


def has_setting(task: str, field: str) -> bool:
    """Return whether the settings of a task have a field."""
    return field in {one.name for one in fields(settings_class(task))}
