"""Check which module imports which: the floors of the house, and no cycles.

A room is a top-level module or package of flexmdm; the core modules are one room, and so is the sandbox, wherever it
lies. A module imports modules of its own room and of rooms on lower floors, and of no other room on its own floor (only
cli imports demos). The sandbox imports nothing but itself, and every room may import it. Imports inside functions and
under TYPE_CHECKING count like all others; the lazy table of names in flexmdm/__init__.py is exempt.
"""

import ast
from pathlib import Path

import flexmdm

SOURCE = Path(__file__).parents[1] / "src"
CORE = (
    "sequences canvas schedules interpolants alignment objective trajectories oracle rates randomness precision "
    "quadrature denoiser settings progress"
)
FLOORS = [
    ["core"],
    ["generation"],
    ["backbones", "evaluation"],
    ["data", "training"],
    ["tasks"],
    ["jobs"],
    ["sweeps"],
    ["reports"],
    ["runs"],
    ["serve"],
    ["integrations", "demos", "cli"],
    ["__main__"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# Today's exceptions; a line leaves when its import does, and none comes.
VIOLATIONS: set[str] = set()
CYCLES: list[str] = []


def imports() -> dict[str, set[str]]:
    """Return the modules of flexmdm that each module of flexmdm imports, without ``flexmdm.``."""
    files = {".".join(file.relative_to(SOURCE).with_suffix("").parts): file for file in SOURCE.glob("flexmdm/**/*.py")}
    files = {name.removesuffix(".__init__"): file for name, file in files.items()}
    found: dict[str, set[str]] = {name: set() for name in files if name != "flexmdm"}
    for name in found:
        for node in ast.walk(ast.parse(files[name].read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{name} has a relative import, which this test does not read"
                wanted = [f"{node.module}.{alias.name}" for alias in node.names]
                found[name] |= {one if one in files else str(node.module) for one in wanted}
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
    return {
        name.removeprefix("flexmdm."): {one.removeprefix("flexmdm.") for one in wanted if one.startswith("flexmdm")}
        for name, wanted in found.items()
    }


def room_of(module: str) -> str:
    parts = module.split(".")
    return "sandbox" if "sandbox" in parts else "core" if parts[0] in CORE.split() else parts[0]


def is_allowed(importer: str, imported: str) -> bool:
    one, other = room_of(importer), room_of(imported)
    if one == other or other == "sandbox":
        return True
    return one != "sandbox" and (FLOOR[other] < FLOOR[one] or (one, other) == ("cli", "demos"))


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Return the strongly connected components of more than one module, each as its names in one line."""

    def reached(start: str) -> set[str]:
        seen, left = set(), [start]
        while left:
            new = graph.get(left.pop(), set()) - seen
            seen |= new
            left += new
        return seen

    reach = {name: reached(name) for name in graph}
    groups = {frozenset(two for two in reach[one] if one in reach.get(two, ())) | {one} for one in graph}
    return sorted(" ".join(sorted(group)) for group in groups if len(group) > 1)


def test_every_room_has_a_floor():
    assert {room_of(module) for module in imports()} <= {*FLOOR, "sandbox"}


def test_modules_import_only_lower_floors_apart_from_a_list_that_only_shrinks():
    graph = imports()
    found = {f"{one} -> {two}" for one in graph for two in graph[one] if not is_allowed(one, two)}
    assert not found - VIOLATIONS, "new imports that go up or across: move the module, or what it needs"
    assert not VIOLATIONS - found, "these are gone: remove them from the list"


def test_modules_import_each_other_in_no_circle_apart_from_a_list_that_only_shrinks():
    assert cycles(imports()) == CYCLES


def test_type_checkers_see_the_public_names_and_no_others():
    tree = ast.parse((SOURCE / "flexmdm" / "__init__.py").read_text())
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    names = [alias.name for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(names) == flexmdm.__all__
