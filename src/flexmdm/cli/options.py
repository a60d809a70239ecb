"""Options of the command line from the fields of settings: an option is written down once, where its setting is."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache, update_wrapper
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from flexmdm.settings import flags_of, options_of
from flexmdm.tasks.registry import settings_class, task_names

Given = dict[str, Any]  # what was given, by field


@dataclass(frozen=True)
class Options:
    """Annotate a parameter of a `Command` that stands for an option for each setting, and takes what was `Given`.

    Attributes:
        classes: returns the classes of the settings; several are those of tasks, by name. They are read when the
            command line is built, so that a task that was registered meanwhile has its options too.
        title: of these options in the help.
        leave_out: fields that the command has no option for.
        defaults: what the help says to be the default of a field in this command.
    """

    classes: Callable[[], Mapping[str, type]]
    title: str | None = None
    leave_out: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, tuple[type, Field]]:
        """Return the class and the field of each option; of a field of several tasks, the first."""
        found: dict[str, tuple[type, Field]] = {}
        for settings in self.classes().values():
            for name, one in options_of(settings).items():
                if name not in self.leave_out:
                    found.setdefault(name, (settings, one))
        return found

    def parameter(self, name: str, settings: type, one: Field) -> Parameter:
        """Return the parameter of an option, as typer reads it."""
        kind: Any = str if one.metadata["parse"] else _type_of(_types_of(settings)[one.name])
        bounds = {bound: one.metadata[bound] for bound in ("min", "max")}
        option = typer.Option(*flags_of(one), help=self._help(one), rich_help_panel=self.title, **bounds)
        return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])

    def _help(self, one: Field) -> str:
        """Return the help of a field, or each help that it has with the tasks that it is for."""
        helps: dict[str, list[str]] = {}
        for task, settings in self.classes().items():
            if one.name in options_of(settings):
                helps.setdefault(options_of(settings)[one.name].metadata["help"], []).append(task)
        several = len(self.classes()) > 1
        help = " ".join(f"{', '.join(tasks)}: {help}" if several else help for help, tasks in helps.items())
        if one.name in self.defaults:
            help = help.partition(" [default: ")[0] + f" [default: {self.defaults[one.name]}]"
        return help


class Command:
    """Wrap a function so that typer finds the options that its parameters with `Options` stand for.

    Parameters that are ``fixed`` have that value, those to ``leave_out`` their default: neither is an option.
    """

    def __init__(self, command: Callable[..., Any], leave_out: tuple[str, ...] = (), **fixed: Any) -> None:
        update_wrapper(self, command)
        self.command, self.fixed, own = command, fixed, signature(command, eval_str=True).parameters
        self._own = {name: parameter for name, parameter in own.items() if name not in (*fixed, *leave_out)}

    def __call__(self, **values: Any) -> Any:
        for name, parameter in self._own.items():
            if options := _options_of(parameter):
                given = {key: (values.pop(f"{name}_{key}"), one) for key, (_, one) in options.settings().items()}
                values[name] = {
                    key: one.metadata["parse"](value) if one.metadata["parse"] else value
                    for key, (value, one) in given.items()
                    if value is not None
                }
        return self.command(**values, **self.fixed)

    @property
    def __signature__(self) -> Signature:
        parameters = []
        for name, parameter in self._own.items():
            if options := _options_of(parameter):
                found = options.settings().items()
                parameters += [options.parameter(f"{name}_{key}", *one) for key, one in found]
            else:
                parameters.append(parameter)
        return Signature(parameters)


def _options_of(parameter: Parameter) -> Options | None:
    return next((one for one in get_args(parameter.annotation)[1:] if isinstance(one, Options)), None)


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
    for key in given:
        tasks = [name for name in task_names() if has_setting(name, key)]
        if task not in tasks:
            option = spellings.get(key) or flags_of(options_of(settings_class(tasks[0]))[key])[0]
            raise ValueError(f"{option} is for --task {' or '.join(tasks)}, and this is {task}: leave it out")


def has_setting(task: str, field: str) -> bool:
    """Return whether the settings of a task have a field."""
    return field in {one.name for one in fields(settings_class(task))}
