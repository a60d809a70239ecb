import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

import flexmdm
from flexmdm.sandbox import BROKE, Limits, Program, Sandbox, guards, run_all, runner
from flexmdm.sandbox.limits import impose
from flexmdm.sandbox.values import Opaque, decode, encode

SQUARE = "def check(candidate):\n    for x in (2, 3, 4):\n        assert candidate(x) == x * x\n"
LEVELS = {
    "all guards": {},
    "no namespaces": {"namespaces": False},
    "audit only": {"namespaces": False, "seccomp": False},
}
LIMITS = Limits(cpu_seconds=1, memory_bytes=256 << 20)
NARROW = Limits(cpu_seconds=1, wall_seconds=1.5, memory_bytes=256 << 20, output_bytes=1000)
SLACK = 4.0  # seconds, for a busy machine
PACKAGES = [Path(sys.base_prefix, "lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")]
PACKAGES += [Path(sysconfig.get_path("purelib")), Path("/usr/lib/python3/dist-packages")]


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as box:
        yield box


@pytest.fixture(scope="module", params=LEVELS)
def any_level(request):
    """With the guards that this machine allows, and with fewer."""
    os.environ["FLEXMDM_TEST_SECRET"] = "secret"
    with Sandbox(LIMITS, **LEVELS[request.param]) as box:
        if request.param == "no namespaces" and not box.guards.seccomp:
            pytest.skip("there is no seccomp here, so this is the level without any guard of the kernel")
        yield box
    del os.environ["FLEXMDM_TEST_SECRET"]


@pytest.fixture(scope="module")
def narrow():
    with Sandbox(NARROW) as box:
        yield box


@pytest.fixture(scope="module")
def outside():
    """A folder in which anyone may do anything, and a listening socket."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        os.chmod(folder, 0o777)
        victim = Path(folder, "victim.txt")
        victim.write_text("precious")
        victim.chmod(0o666)
        server.settimeout(0.01)
        yield Path(folder), server


def run(box, source, test=SQUARE, context=""):
    return box.run(Program(textwrap.dedent(source), test, "solve", context))


def children_of(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return found


def assert_harmless(verdict, box, outside):
    assert not verdict.passed and verdict.result != BROKE, verdict
    folder, server = outside
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"victim.txt": "precious"}
    assert (folder / "victim.txt").stat().st_mode & 0o777 == 0o666
    with pytest.raises(TimeoutError):
        server.accept()
    if sys.platform == "linux":
        assert children_of(box._supervisor.pid) == []


# Programs that want to pass without being right -----------------------------------------------------------------------

CHEATS = {
    "leaves at once": "import sys; sys.exit(0)",
    "leaves at once, hard": "import os; os._exit(0)",
    "raises SystemExit": "raise SystemExit(0)",
    "leaves in the call": "def solve(x): import sys; sys.exit(0)",
    "leaves in the call, hard": "def solve(x): import os; os._exit(0)",
    "kills itself": "def solve(x): import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "returns nothing": "def solve(x): return",
    "defines nothing": "check = lambda candidate: None",
    "is no Python": "def solve(x: return",
    "half a character": "def solve(x): return '\ud800'",
    "is equal to everything": """
        class Anything:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __hash__(self): return 0
        def solve(x): return Anything()
    """,
    "an int that is equal to everything": """
        class Any(int):
            __eq__ = lambda self, other: True
            __hash__ = int.__hash__
        def solve(x): return Any(5)
    """,
    "claims another class": """
        class Liar:
            __class__ = int
            def __eq__(self, other): return True
            def __int__(self): return 4
        def solve(x): return Liar()
    """,
    "patches builtins": """
        import builtins
        builtins.AssertionError = builtins.Exception = builtins.BaseException = type("Never", (BaseException,), {})
        builtins.print = builtins.isinstance = builtins.len = builtins.compile = builtins.exec = lambda *a, **k: True
        def solve(x): return 0
    """,
    "patches the encoder": """
        import json, sys
        json.dumps = lambda *a, **k: "passed"
        def solve(x): return 0
    """,
    "replaces the judge": """
        import sys
        for name, module in list(sys.modules.items()):
            for attribute in ("judge", "check", "receive", "decode"):
                if hasattr(module, attribute): setattr(module, attribute, lambda *a, **k: "passed")
        def solve(x): return 0
    """,
    "edits the frames above": """
        import sys
        def solve(x):
            frame = sys._getframe()
            while frame:
                frame.f_globals["SQUARE"] = frame.f_locals["passed"] = True
                frame.f_globals["_result"] = lambda *a: {"value": 4, "passed": True}
                frame = frame.f_back
            return 0
    """,
    "looks for the tests in memory": """
        import gc
        def solve(x):
            for thing in gc.get_objects():
                if isinstance(thing, dict):
                    for value in list(thing.values()):
                        if isinstance(value, str) and "assert " + "candidate(x) ==" in value: return x * x
            return 0
    """,
    "prints success": """
        import sys
        print("passed"); sys.stderr.write("passed")
        def solve(x): print("passed", flush=True)
    """,
    "writes success to all descriptors": """
        import os
        def solve(x):
            for descriptor in range(256):
                try: os.write(descriptor, b"passed")
                except OSError: pass
            os._exit(0)
    """,
    "closes all descriptors": "import os; os.closerange(0, 256)\ndef solve(x): return 0",
    "answers before it is asked": """
        import json, os
        data = json.dumps({"dict": [["value", 4]]}).encode()
        for _ in range(100): os.write(3, len(data).to_bytes(4, "big") + data)
        def solve(x): return 0
    """,
    "announces a huge message": "import os; os.write(3, b'\\xff' * 64)\ndef solve(x): return 0",
    "nests brackets": """
        import os
        data = b"[" * 100_000
        os.write(3, len(data).to_bytes(4, "big") + data)
        def solve(x): return 0
    """,
    "sends an unknown type": """
        import os
        data = b'{"__import__": "os"}'
        os.write(3, len(data).to_bytes(4, "big") + data)
        def solve(x): return 0
    """,
    "raises half a character": "def solve(x): raise ValueError('\\ud800')",
    "sends changes of what it was not given": """
        import json, os
        def reply(changed): return {"dict": [["value", 4], ["changed", {"dict": changed}]]}
        def solve(x):
            for changed in ([[7, 1]], [["x", 1]], [[0.0, 1]], [[0, [1]]]):
                data = json.dumps(reply(changed)).encode()
                os.write(3, len(data).to_bytes(4, "big") + data)
    """,
    "sends changes that are none": """
        import json, os
        data = json.dumps({"dict": [["value", 4], ["changed", 4]]}).encode()
        def solve(x): os.write(3, len(data).to_bytes(4, "big") + data)
    """,
    "raises what has no text": """
        class Odd(BaseException):
            def __str__(self): raise self
        def solve(x): raise Odd
    """,
    "traces": "import sys; sys.settrace(lambda *a: sys.exit(0))\ndef solve(x): return 0",
    "leaves at exit": "import atexit, os; atexit.register(os._exit, 0)\ndef solve(x): return 0",
    "crashes": "def solve(x): import ctypes; ctypes.string_at(0)",
}


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_passes(any_level, outside, name):
    verdict = run(any_level, CHEATS[name])
    assert_harmless(verdict, any_level, outside)


# Programs that reach outside: each is right if, and only if, it got there ---------------------------------------------

REACHES = {
    "deletes a file": "os.remove('{victim}')",
    "deletes a tree": "shutil.rmtree('{folder}')",
    "empties a file": "open('{victim}', 'w').close()",
    "appends to a file": "open('{victim}', 'a').write('x')",
    "opens a file for writing": "os.open('{victim}', os.O_RDWR)",
    "creates a file": "open('{folder}/new', 'x')",
    "creates a folder": "os.mkdir('{folder}/new')",
    "renames a file": "os.rename('{victim}', '{folder}/new')",
    "changes permissions": "os.chmod('{victim}', 0)",
    "truncates a file": "os.truncate('{victim}', 0)",
    "links to a file": "os.symlink('{victim}', '{folder}/link')",
    "writes through a link": "os.symlink('{victim}', 'link'); open('link', 'w')",
    "runs a shell": "assert os.system('echo x > {folder}/new') == 0",
    "runs a program": "subprocess.run(['/bin/rm', '{victim}'], check=True)",
    "becomes a program": "os.execv('/bin/true', ['true'])",
    "spawns a program": "os.posix_spawn('/bin/true', ['true'], {{}})",
    "forks": "os.fork() or time.sleep(60)",
    "forks a daemon": "os.fork() or (os.setsid(), os.fork(), time.sleep(60))",
    "forks without end": "[os.fork() for _ in range(10**6)]",
    "starts a thread": "threading.Thread(target=time.sleep, args=(60,)).start()",
    "uses processes": "multiprocessing.get_context('fork').Process(target=print).start()",
    "connects": "socket.create_connection(('127.0.0.1', {port}), timeout=1)",
    "sends a datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "fetches a page": "urllib.request.urlopen('http://127.0.0.1:{port}/', timeout=1)",
    "kills everything": "os.kill(-1, signal.SIGKILL)",
    "kills its parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "kills the group of its parent": "os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)",
    "writes to its parent's memory": "open(f'/proc/{{os.getppid()}}/mem', 'r+b')",
    "raises its limits": "resource.setrlimit(resource.RLIMIT_CPU, (100, 100))",
    "becomes root": "os.setuid(0) if os.getuid() else 1 / 0",
    "mounts": "assert ctypes.CDLL(None).mount(b'tmpfs', b'/', b'tmpfs', 0, None) == 0",
    "leaves its root": "os.chroot('..')",
    "traces its parent": "assert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
    "reads the environment": "os.environ['FLEXMDM_TEST_SECRET']",
    "reads the environment of its parent": "open(f'/proc/{{os.getppid()}}/environ').read().index('TEST_SECRET')",
    "waits for input": "input()",
    "reads input": "sys.stdin.read()",
    "imports what is installed": "import numpy",
    "imports this package": "from flexmdm import Canvas",
}  # fmt: skip
MODULES = "ctypes multiprocessing os resource shutil signal socket subprocess sys threading time urllib.request"


def reaching(attempt, outside):
    folder, server = outside
    attempt = attempt.format(folder=folder, victim=folder / "victim.txt", port=server.getsockname()[1])
    imports = "\n    ".join(f"import {module}" for module in MODULES.split() if module.split(".")[0] in attempt)
    return f"def solve(x):\n    {imports or 'pass'}\n    if x == 2: {attempt}\n    return x * x\n"


@pytest.mark.parametrize("name", REACHES)
def test_nothing_outside_is_reached(any_level, outside, name):
    verdict = run(any_level, reaching(REACHES[name], outside))
    assert_harmless(verdict, any_level, outside)


@pytest.mark.parametrize("path", ["{victim}", "/etc/passwd", "/proc/self/status", "/dev/null", "/bin/sh"])
def test_files_outside_are_not_even_there(narrow, outside, path):
    if not narrow.guards.namespaces:
        pytest.skip(f"without namespaces files can be read; here: {narrow.guards}")
    path = path.format(victim=outside[0] / "victim.txt")
    verdict = run(narrow, f"def solve(x):\n    open({path!r}).read()\n    return x * x")
    assert verdict.result.startswith("failed: FileNotFoundError")


def test_nothing_that_others_own_can_be_listed(narrow):
    if not narrow.guards.namespaces:
        pytest.skip(f"without namespaces folders can be read; here: {narrow.guards}")
    verdict = run(narrow, "import os\nprint(sorted(os.listdir('/')), os.listdir('.'))\ndef solve(x): return x * x")
    assert verdict.passed
    assert not {"home", "tmp", "etc", "proc", "dev", "work"} & set(verdict.output.split("'"))
    assert verdict.output.endswith(" []\n")


def test_no_package_is_found_whatever_the_path(sandbox):
    """The program looks where packages are installed outside, and everywhere else for folders of this kind."""
    if not sandbox.guards.namespaces:
        pytest.skip(f"without namespaces folders can be read; here: {sandbox.guards}")
    known = [path for path in PACKAGES if path.is_dir()]
    source = f"""
        import os, sys
        names = ("site-packages", "dist-packages", "_bundled")
        folders = [top for top, _, _ in os.walk("/") if os.path.basename(top) in names]
        folders += {[str(path) for path in known]}
        wheels = [os.path.join(top, file) for top, _, files in os.walk("/") for file in files if file.endswith(".whl")]
        sys.path += folders + wheels
        for name in ("pip", "numpy"):
            try: __import__(name)
            except ImportError: pass
            else: print("imported", name)
        for folder in folders:
            if os.path.isdir(folder) and os.listdir(folder): print(folder, os.listdir(folder))
        print("looked")
        def solve(x): return x * x
    """
    verdict = run(sandbox, source)
    assert verdict.passed and verdict.output == "looked\n", verdict


def test_an_environment_has_nothing_to_show(tmp_path, monkeypatch):
    """Some versions of Python take the library of an environment, where its packages are, for a standard library."""
    monkeypatch.setitem(sysconfig.get_config_vars(), "platbase", str(tmp_path))
    (tmp_path / "lib" / Path(sysconfig.get_path("stdlib")).name / "site-packages").mkdir(parents=True)
    assert Path(sysconfig.get_path("platstdlib")).is_relative_to(tmp_path)
    assert not any(path.is_relative_to(tmp_path.resolve()) for path in guards._libraries())


def test_all_folders_of_packages_are_covered(tmp_path, monkeypatch):
    """Deep ones too; not what links lead to, which is outside, nor what is inside of others."""
    deep = tmp_path / "sdk" / "lib" / "python3" / "site-packages"
    for folder in (deep / "inner" / "site-packages", tmp_path / "python3" / "dist-packages", tmp_path / "json"):
        folder.mkdir(parents=True)
    (tmp_path / "json" / "site-packages").symlink_to("/")
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(guards, "_libraries", lambda: [tmp_path, tmp_path / "link"])
    assert sorted(guards._package_folders.__wrapped__()) == [str(tmp_path / "python3" / "dist-packages"), str(deep)]


def test_what_is_left_in_the_directory_is_gone_for_the_next(narrow):
    if not narrow.guards.namespaces:
        pytest.skip(f"without namespaces nothing can be written; here: {narrow.guards}")
    source = """
        import os
        assert os.listdir(".") == []
        open("left", "w").write("x")
        os.makedirs("/".join("d" * 500))
        def solve(x): return x * x
    """
    assert [run(narrow, source).result for _ in range(2)] == ["passed", "passed"]


# Programs that use too much -------------------------------------------------------------------------------------------

HOGS = {
    "loops": "while True: pass",
    "loops and catches everything": """
        def solve(x):
            while True:
                try:
                    while True: pass
                except BaseException: pass
    """,
    "loops and ignores signals": """
        import signal
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass
    """,
    "is busy inside one operation": "def solve(x): return 7 ** 10**9",
    "backtracks": "import re\ndef solve(x): re.match('(a+)+b', 'a' * 60)",
    "sleeps": "import time\ndef solve(x): time.sleep(1000)",
    "stops itself": "import os, signal\ndef solve(x): os.kill(os.getpid(), signal.SIGSTOP)",
    "waits for a message": "import os\ndef solve(x): os.read(3, 1)",
    "prints without end": "def solve(x):\n    while True: print('x' * 1000)",
    "answers without end": """
        import os
        def solve(x):
            while True: os.write(3, b"\\0\\0\\0\\x01" + b"1")
    """,
    "yields without end": "import itertools\ndef solve(x): return itertools.count()",
    "sends more than there is room for": """
        import os
        def solve(x):
            data = b"[" + b"[]," * 5_000_000 + b"[]]"
            data = len(data).to_bytes(4, "big") + data
            while data: data = data[os.write(3, data):]
    """,
    "exhausts the stack": """
        import sys
        sys.setrecursionlimit(10**9)
        def solve(x): return repr(nested())
        def nested():
            inner = []
            for _ in range(10**6): inner = [inner]
            return inner
    """,
}
GREEDY = {
    "takes all memory": "def solve(x): return bytearray(10**12)",
    "takes memory bit by bit": "def solve(x):\n    a = []\n    while True: a.append(bytes(10**7))",
    "makes a huge string": "def solve(x): return 'x' * 10**9",
    "writes a huge file": "def solve(x):\n    with open('f', 'wb') as f:\n        while True: f.write(bytes(10**6))",
    "writes many files": "def solve(x):\n    for n in range(10**6): open(str(n), 'w').close()",
    "opens many files": "import os\ndef solve(x):\n    while True: os.dup(1)",
    "recurses": "def solve(x): return solve(x)",
    "returns a value that holds itself": "def solve(x):\n    a = []\n    a.append(a)\n    return a",
}


@pytest.mark.parametrize("name", HOGS)
def test_no_hog_outlives_its_limits(narrow, outside, name):
    start = time.monotonic()
    verdict = run(narrow, HOGS[name])
    assert time.monotonic() - start < NARROW.wall_seconds + SLACK
    assert len(verdict.output) <= NARROW.output_bytes
    if name in ("loops", "loops and ignores signals", "sleeps", "stops itself", "prints without end"):
        assert verdict.result == "timed out"
    assert_harmless(verdict, narrow, outside)


BURN = """
    import time
    def solve(x):
        while time.process_time() < {seconds}: pass
        return x * x
"""
IGNORE = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"


def test_the_promised_time_is_given_and_more_is_a_time_out():
    """By the CPU time as it is measured exactly, though the kernel's limit counts ticks."""
    with Sandbox(Limits(cpu_seconds=0.5)) as box:
        assert run(box, BURN.format(seconds=0.45)).result == "passed"
        assert run(box, BURN.format(seconds=0.6)).result == "timed out"


def test_the_kernel_leaves_the_whole_of_the_promised_time():
    """It has ended programs after 2.4 s of a limit of 3 s."""
    for promised in (0.1, 1, 2, 3, 10, 60):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                impose(Limits(cpu_seconds=promised))
                os.write(writer, bytes(resource.getrlimit(resource.RLIMIT_CPU)))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        soft, hard = os.read(reader, 2)
        os.close(reader)
        os.close(writer)
        assert 0.8 * soft >= promised and hard == soft + 1


@pytest.mark.parametrize("before", ["", IGNORE])
def test_a_program_that_the_kernel_ends_for_its_cpu_time_has_timed_out(before):
    with Sandbox(Limits(cpu_seconds=0.1, wall_seconds=30)) as box:
        verdict = run(box, before + "def solve(x):\n    while True: pass")
        assert verdict.result == "timed out" and verdict.seconds < 30


def test_a_program_that_makes_its_tests_use_too_much_time_has_timed_out():
    with Sandbox(Limits(cpu_seconds=0.1, wall_seconds=30)) as box:
        verdict = run(box, "def solve(x): return x", "def check(candidate):\n    x = candidate(1)\n    while x: pass")
        assert verdict.result == "timed out" and verdict.seconds < 30


def test_a_program_that_ends_itself_has_not_timed_out(sandbox):
    verdict = run(sandbox, "import os, signal\ndef solve(x): os.kill(os.getpid(), signal.SIGKILL)")
    assert verdict.result == "failed: the program ended before its tests did"


@pytest.mark.parametrize("name", GREEDY)
def test_greed_is_an_error_of_the_program(any_level, outside, name):
    verdict = run(any_level, GREEDY[name])
    assert verdict.result.startswith("failed: "), verdict
    assert_harmless(verdict, any_level, outside)


def test_a_limit_must_be_above_nothing():
    with pytest.raises(ValueError, match="cpu_seconds = 0"):
        Limits(cpu_seconds=0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
def test_whoever_leaves_the_group_is_found_and_ended():
    script = f"""
        import os, sys, time, types
        for name, path in (("flexmdm", ""), ("flexmdm.sandbox", "sandbox")):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [os.path.join({str(Path(flexmdm.__file__).parent)!r}, path)]
        from flexmdm.sandbox.guards import become_subreaper
        from flexmdm.sandbox.supervisor import end_children
        become_subreaper()
        reader, writer = os.pipe()
        leader = os.fork()
        if leader == 0:
            os.setsid()
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    if os.fork() == 0:
                        os.setsid()
                        os.write(writer, b"x")
                    time.sleep(600)
            time.sleep(600)
        os.close(writer)
        for _ in range(3): os.read(reader, 1)
        print(len(end_children([leader], os.open("/proc", os.O_DIRECTORY))))
        print(os.read(reader, 1))  # the end, once nobody holds the other side
    """
    command = [sys.executable, "-I", "-S", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["7", "b''"], done.stderr


def test_nothing_is_left_when_the_user_of_the_sandbox_dies():
    if not Path("/proc").exists():
        pytest.skip("there is no /proc")
    with Sandbox() as box:
        other, supervisor = os.fork(), box._supervisor.pid
        if other == 0:  # the supervisor hears nothing from us any more, but from this copy of us, which dies
            signal.alarm(60)
            box.run(Program("import time\ntime.sleep(60)", SQUARE, "solve"))
            os._exit(0)
        deadline = time.monotonic() + 20
        while len(children_of(supervisor)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(children_of(supervisor)) == 2
        box._control.close()
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
        assert box._supervisor.wait(10) == 0 and children_of(supervisor) == []


# Errors that are ours -------------------------------------------------------------------------------------------------


def test_a_full_disk_is_no_verdict(sandbox, monkeypatch):
    def full(text):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("flexmdm.sandbox.runner._file", full)
        with pytest.raises(OSError, match="No space left"):
            run(sandbox, "def solve(x): return x * x")
        with pytest.raises(OSError, match="No space left"):
            list(run_all([Program("", SQUARE, "solve")], workers=1))
    assert run(sandbox, "def solve(x): return x * x").passed


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits other processes")
def test_a_supervisor_without_means_says_so_and_is_no_verdict():
    """It has descriptors for the request and for nothing else."""
    with Sandbox(namespaces=False, seccomp=False) as mine:
        supervisor = mine._supervisor.pid
        used = {int(path.name) for path in Path(f"/proc/{supervisor}/fd").iterdir()}
        limit = [number for number in range(max(used) + 5) if number not in used][3] + 1
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (limit, limit))
        with pytest.raises(OSError, match="the sandbox cannot start a program: .*Too many open files"):
            run(mine, "def solve(x): return x * x")
        assert run(mine, "def solve(x): return x * x").passed


def test_a_supervisor_that_somebody_else_ended_is_no_verdict():
    with Sandbox() as mine:
        mine._supervisor.kill()
        mine._supervisor.wait()
        assert run(mine, "def solve(x): return x * x").passed
        killer = threading.Timer(0.5, mine._supervisor.kill)  # while the next one runs
        killer.start()
        assert run(mine, "import time\ntime.sleep(1)\ndef solve(x): return x * x").passed
        killer.join()


def test_a_program_with_which_every_supervisor_ends_has_failed(monkeypatch):
    wait = Sandbox._wait

    def killed(self, output):
        self._supervisor.kill()
        return wait(self, output)

    with Sandbox() as mine:
        with monkeypatch.context() as patched:
            patched.setattr(Sandbox, "_wait", killed)
            assert run(mine, "def solve(x): return x * x").result == BROKE
        assert run(mine, "def solve(x): return x * x").passed


@pytest.mark.parametrize(
    ("test", "context", "problem"),
    [
        ("def check(candidate", "", "the tests of solve cannot run: SyntaxError"),
        (SQUARE, "import numpy", "the tests of solve cannot run: ModuleNotFoundError"),
        (SQUARE, "raise SystemExit(0)", "the tests cannot run: SystemExit: 0"),
        ("def test(candidate): pass", "", "the tests of solve define no function 'check'"),
    ],
)
def test_broken_tests_are_no_verdict(sandbox, test, context, problem):
    with pytest.raises(OSError, match=f"the sandbox cannot judge a program: {problem}"):
        run(sandbox, "def solve(x): return x * x", test, context)
    assert run(sandbox, "def solve(x): return x * x").passed


def mistaken(monkeypatch, statements):
    """A sandbox with a mistake in the code of its own processes."""
    monkeypatch.setattr(runner, "_START", runner._START.replace("\nserve(", f"\n{statements}\nserve("))
    return Sandbox()


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        ("import flexmdm.sandbox.supervisor as s; s.judge = None", "the tests cannot run: TypeError"),
        ("import flexmdm.sandbox.supervisor as s; s.confine = None", "cannot (run|be confined): TypeError"),
        ("import flexmdm.sandbox.supervisor as s; s._read_all = None", "its tests ended without a result"),
        ("import flexmdm.sandbox.judge as j; j._replaced = None", "TypeError: 'NoneType' object is not callable"),
        ("import flexmdm.sandbox.judge as j; j.encode = None", "TypeError: 'NoneType' object is not callable"),
        ("import flexmdm.sandbox.supervisor as s; s.end_children = None", "ended before the program was judged: Trace"),
        (
            "import flexmdm.sandbox.supervisor as s\ns.Trial.run_candidate = None",
            "the process of the program ended before the program ran",
        ),
    ],
)
def test_a_mistake_of_the_sandbox_is_no_verdict(monkeypatch, statements, problem):
    test = "def check(candidate):\n    try: candidate([1])\n    except: pass"
    with mistaken(monkeypatch, statements) as box, pytest.raises(OSError, match=problem):
        run(box, "def solve(x): x.append(1)", test)


# Programs that are honest ---------------------------------------------------------------------------------------------


def test_honest_programs_pass_at_every_level(any_level):
    source = """
        import collections, functools, heapq, itertools, math, random, re, string, zlib, colorsys
        from typing import List
        @functools.lru_cache(None)
        def power(x: int, n: int) -> int:
            return 1 if n == 0 else x * power(x, n - 1)
        def solve(x: int) -> int:
            random.random()
            print(x)
            return power(x, 2)
    """
    verdict = run(any_level, source)
    assert verdict.passed and verdict.output == "2\n3\n4\n"


def test_every_assertion_must_hold(sandbox):
    assert run(sandbox, "def solve(x): return x * x").result == "passed"
    assert run(sandbox, "def solve(x): return 4").result == "failed: AssertionError"
    assert run(sandbox, "def solve(x): return x + None").result.startswith("failed: TypeError: unsupported operand")
    assert run(sandbox, "def other(x): return 4").result == "failed: NameError: the program defines no 'solve'"
    assert run(sandbox, "if __name__ == '__main__': raise ValueError\ndef solve(x): return x * x").passed


@pytest.mark.parametrize(
    ("returned", "expression"),
    [
        ("[1, 2.5, 'ü', None, True]", "candidate() == [1, 2.5, 'ü', None, True]"),
        ("(1, (2, [3]))", "candidate() == (1, (2, [3])) and type(candidate()) is tuple"),
        ("{'a': {1: 2}, (1, 2): {3}}", "candidate() == {'a': {1: 2}, (1, 2): {3}}"),
        ("{1, 2}", "candidate() == {2, 1} and isinstance(candidate(), set)"),
        ("10 ** 6000", "candidate() == 10 ** 6000"),
        ("-2 ** 63", "candidate() == -2 ** 63"),
        ("float('nan')", "candidate() != candidate()"),
        ("-0.0", "str(candidate()) == '-0.0'"),
        ("1e-320", "candidate() == 1e-320"),
        ("1 + 2j", "candidate() == 1 + 2j"),
        ("b'\\xff'", "candidate() == b'\\xff'"),
        ("(x for x in 'ab')", "tuple(candidate()) == ('a', 'b') and candidate() != ['a', 'b']"),
        ("map(str, [1])", "next(candidate()) == '1'"),
        ("{1: 2}.keys()", "candidate() == {1} and candidate() != [1]"),
        ("{1: 2}.values()", "list(candidate()) == [2]"),
        ("{1: 2}.items()", "dict(candidate()) == {1: 2}"),
        ("range(3)", "candidate() == range(3) and candidate() != [0, 1, 2]"),
        ("__import__('collections').Counter('aab')", "candidate() == {'a': 2, 'b': 1}"),
        ("__import__('collections').defaultdict(int, a=1)", "candidate() == {'a': 1}"),
        ("__import__('collections').deque([1])", "list(candidate()) == [1] and candidate() != [1]"),
        ("__import__('fractions').Fraction(1, 2)", "candidate() == 0.5"),
        ("__import__('decimal').Decimal('15')", "candidate() == 15"),
        ("object()", "candidate() != object() and candidate() is not None"),
    ],
)
def test_values_arrive_as_in_one_process(sandbox, returned, expression):
    test = f"def check(candidate):\n    assert {expression}"
    assert run(sandbox, f"def solve(): return {returned}", test).result == "passed"


def test_tests_see_what_a_call_did_to_its_arguments(sandbox):
    test = """
        def check(candidate):
            numbers, names, seen = [3, 1, 2], {"a": 1}, set()
            assert candidate(numbers, names, seen=seen) is None
            assert numbers == [1, 2, 3] and names == {"a": 1, "b": [2]}
            assert solve([], {}) is None
    """
    source = "def solve(numbers, names, seen=()):\n    numbers.sort()\n    names['b'] = [2]"
    assert run(sandbox, source, textwrap.dedent(test)).result == "passed"


def test_tests_can_expect_exceptions(sandbox):
    test = """
        def check(candidate):
            try:
                candidate()
            except ValueError as error:
                assert str(error) == "no"
            else:
                assert False
    """
    source = "class Mine(ValueError): pass\ndef solve(): raise {}"
    results = [
        run(sandbox, source.format(raised), textwrap.dedent(test)).result
        for raised in ("ValueError('no')", "Mine('no')", "TypeError('no')", "SystemExit('no')")
    ]
    assert results == ["passed", "passed", "failed: TypeError: no", "failed: SystemExit: no"]


def test_no_test_can_swallow_the_end_of_a_program(sandbox):
    test = "def check(candidate):\n    try:\n        candidate()\n    except:\n        pass"
    assert run(sandbox, "def solve(): import os; os._exit(0)", test).result.startswith("failed: the program ended")


def test_helpers_of_the_tests_are_out_of_reach(sandbox):
    context = "def half(x):\n    return x / 2\ndef solve(x):\n    return 2 * x\n"
    test = "def check(candidate):\n    assert half(candidate(3)) == 3"
    assert run(sandbox, "def solve(x): return 2 * x", test, context).passed
    cheat = "half = lambda x: 3\ndef solve(x):\n    global half\n    half = lambda x: 3\n    return 0"
    assert run(sandbox, cheat, test, context).result == "failed: AssertionError"


def test_a_program_has_three_descriptors_and_the_channel_and_no_torch(sandbox):
    source = """
        import os, sys
        def solve():
            found = []
            for descriptor in range(30):
                try: os.fstat(descriptor)
                except OSError: continue
                found.append(descriptor)
            return found, "torch" in sys.modules, dict(os.environ), sys.argv
    """
    assert run(sandbox, source, "def check(f): assert f() == ([0, 1, 2, 3], False, {}, ['']), f()").result == "passed"


def test_guards_say_what_they_are():
    with Sandbox(namespaces=False, seccomp=False) as box:
        assert (box.guards.namespaces, box.guards.seccomp, box.guards.audit) == (False, False, True)
        assert str(box.guards).startswith("audit; without namespaces")


def test_many_programs_side_by_side():
    programs = [Program(f"def solve(x): return x * x if {n} % 3 else None", SQUARE, "solve") for n in range(12)]
    verdicts = dict(run_all(programs, workers=2))
    assert [verdicts[n].passed for n in range(12)] == [bool(n % 3) for n in range(12)]
    assert list(run_all([])) == []


def test_an_entry_point_is_a_name():
    with pytest.raises(ValueError, match="the name of a function"):
        Program("", "", "solve()\nimport os")


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (namedtuple("Point", "x y")(1, 2), (1, 2)),
        (deque([1]), deque([1])),
        (Fraction(-1, 3), Fraction(-1, 3)),
        (Decimal("1.10"), Decimal("1.10")),
        (bytearray(b"x"), bytearray(b"x")),
        (True, True),
        (frozenset({1}), frozenset({1})),
    ],
)
def test_values_of_the_standard_library_stay_or_become_their_base(value, same):
    got = decode(encode(value))
    assert got == same and type(got) is type(same)


def test_functions_types_and_modules_are_opaque():
    for value in (len, int, os, lambda: None, NotImplemented):
        assert isinstance(decode(encode(value)), Opaque)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"a": 1, "b": 2}', b"{}", b'{"set": [[]]}', b'{"int": "zz"}', b'{"int": 5}', b'{"dict": [1]}',
     b'{"range": [1, 2, 0]}', b'{"Fraction": [1, 0]}', b'{"Decimal": "x"}', b'{"bytes": "0"}', b'{"os.system": "ls"}',
     b"[" * 10**5, b"\xff"],
)  # fmt: skip
def test_bytes_that_are_no_value_are_an_error(data):
    with pytest.raises(ValueError):
        decode(data)
