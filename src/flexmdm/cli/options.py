"""Options of the command line from the fields of settings: an option is written down once, where its setting is."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache, update_wrapper
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from flexmdm.settings import flags_of, options_of
from flexmdm.tasks.registry import settings_class, task_names

Given = dict[str, Any]  # what was given, by field


@dataclass(frozen=True)
class Options:
    """Annotate a parameter of a `Command` that stands for an option for each setting.

    The parameter takes an object of its type if that is a dataclass, else what was `Given`.

    Attributes:
        classes: the class of the settings; or what returns those of several tasks by name when the command line is
            built, so that a task that was registered meanwhile has its options too.
        title: of these options in the help.
        leave_out: fields that the command has no option for.
        defaults: what the help says to be the default of a field in this command.
    """

    classes: type | Callable[[], Mapping[str, type]]
    title: str | None = None
    leave_out: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, tuple[type, Field, str]]:
        """Return the class, the field and the help of each option; of a field of several tasks, the first.

        Its help is then each that it has, with the tasks that it is for.
        """
        classes: Mapping[str, Any] = {"": self.classes} if isinstance(self.classes, type) else self.classes()
        found: dict[str, tuple[type, Field]] = {}
        helps: dict[str, dict[str, list[str]]] = {}
        for task, settings in classes.items():
            for name, one in options_of(settings).items():
                found.setdefault(name, (settings, one))
                helps.setdefault(name, {}).setdefault(one.metadata["help"], []).append(task)
        said = {
            name: " ".join(f"{', '.join(tasks)}: {help}" if len(classes) > 1 else help for help, tasks in each.items())
            for name, each in helps.items()
        }
        for name in self.defaults.keys() & said.keys():
            said[name] = said[name].partition(" [default: ")[0] + f" [default: {self.defaults[name]}]"
        return {name: (*one, said[name]) for name, one in found.items() if name not in self.leave_out}

    def parameter(self, name: str, settings: type, one: Field, help: str) -> Parameter:
        """Return the parameter of an option, as typer reads it."""
        kind: Any = str if one.metadata["parse"] else _type_of(_types_of(settings)[one.name])
        option = typer.Option(*flags_of(one), help=help, rich_help_panel=self.title, **one.metadata["option"])
        return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


class Command:
    """Wrap a function so that typer finds the options that its parameters with `Options` stand for.

    Parameters that are ``fixed`` have that value, those to ``leave_out`` their default: neither is an option.
    """

    def __init__(self, command: Callable[..., Any], leave_out: tuple[str, ...] = (), **fixed: Any) -> None:
        update_wrapper(self, command)
        self.command, self.fixed, own = command, fixed, signature(command, eval_str=True).parameters
        self._own = {name: parameter for name, parameter in own.items() if name not in (*fixed, *leave_out)}
        self._made: dict[tuple[type, ...], Signature] = {}  # by the tasks that there are; typer asks again and again

    def __call__(self, **values: Any) -> Any:
        for name, parameter in self._own.items():
            for options in _options_of(parameter):
                given: Given = {}
                for key, (_, one, _) in options.settings().items():
                    value, parse = values.pop(f"{name}_{key}"), one.metadata["parse"]
                    if value is not None:
                        given[key] = parse(value) if parse else value
                kind = get_args(parameter.annotation)[0]
                values[name] = kind(**given) if is_dataclass(kind) else given
        return self.command(**values, **self.fixed)

    @property
    def __signature__(self) -> Signature:
        tasks = tuple(map(settings_class, task_names()))
        if tasks not in self._made:
            parameters = []
            for name, parameter in self._own.items():
                for options in _options_of(parameter):
                    parameters += [options.parameter(f"{name}_{key}", *one) for key, one in options.settings().items()]
                parameters += [] if _options_of(parameter) else [parameter]
            self._made[tasks] = Signature(parameters)
        return self._made[tasks]


def _options_of(parameter: Parameter) -> list[Options]:
    return [one for one in get_args(parameter.annotation) if isinstance(one, Options)]


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

    The ``spellings`` are how the fields are given that no option is generated for.
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
