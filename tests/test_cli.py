"""The commands: what they print, and the five exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from emul import __version__, cli, engine

ROOT = Path(__file__).resolve().parents[1]
SKELETON = ROOT / "scenarios" / "skeleton.yaml"
SMALL = """\
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task:
  data: {set: digits}
  partition: iid
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 2}
"""
FAILING = '''\
"""A scheme with a bug."""

from dataclasses import dataclass

from emul.roles import Node, Scheme


@dataclass(frozen=True)
class Params:
    grumble: bool = False


async def server(node: Node, p: Params) -> None:
    raise LookupError("a bug of this role")


async def client(node: Node, p: Params) -> None:
    pass


def check(params, world):
    return ["grumble: is not wanted"] if params.grumble else []


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, check=check)
'''


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


class Shell:
    """Runs commands in this process, in a folder that holds `small.yaml` and the plug-ins `failing` and `broken`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", [*sys.path])
        (folder / "small.yaml").write_text(SMALL)
        (folder / "failing.py").write_text(FAILING)
        (folder / "broken.py").write_text("1 / 0")

    def __call__(self, *args: str) -> Said:
        self._monkeypatch.setattr(sys, "argv", ["emul", *args])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = self._capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Said(stop.value.code, said.out, said.err)

    def run(self, *args: str) -> Said:
        return self("run", "small.yaml", "--workers", "0", "--quiet", *args)

    def summary(self, directory: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / directory / "summary.json").read_text())
        return found


@pytest.fixture
def emul(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


# --- exit codes -------------------------------------------------------------------------------------------------------

def test_a_run_that_ends_well_prints_its_table_and_directory_and_exits_0(emul: Shell) -> None:
    said = emul.run()
    assert said.code == 0
    assert said.err == ""
    head, row, where = said.out.splitlines()
    assert head.split()[:3] == ["scheme", "rounds", "failed"]
    assert row.split()[:3] == ["fedavg", "2", "0"]
    assert where == "fedavg: runs/small-fedavg-1"
    assert not (emul.folder / "runs/small-fedavg-1/INCOMPLETE").exists()


def test_where_all_rounds_fail_the_first_reason_is_the_last_line(emul: Shell) -> None:
    """A scheme that raises a failure of its protocol in each round, as Flower does where every client app raises."""
    (emul.folder / "hapless.py").write_text(FAILING.replace('raise LookupError("a bug of this role")', (
        'async for round_ in node.rounds():\n        with round_:\n'
        '            raise TooFewClients(f"nobody, in round {round_}")')).replace(
        "from emul.roles", "from emul.base.errors import TooFewClients\nfrom emul.roles"))
    said = emul.run("--plugin", "hapless", "--set", "schemes=[hapless]")
    assert said.code == 0
    assert said.err.splitlines()[-1] == (
        "hapless: all rounds failed; the first: round 1 at server: TooFewClients: nobody, in round 1")


def test_a_scheme_with_a_bug_exits_1_says_where_and_keeps_its_directory(emul: Shell) -> None:
    said = emul.run("--plugin", "failing", "--set", "schemes=[failing, fedavg]")
    assert said.code == 1
    assert "failing failed: RoleFailed: " in said.err
    assert "LookupError: a bug of this role" in said.err
    assert re.search(r"failing\.py", said.err)
    assert "fedavg: runs/small-fedavg-1" in said.out            # one that fails does not stop the others
    directory = emul.folder / "runs" / "small-failing-1"
    assert (directory / "INCOMPLETE").exists()
    assert (directory / "journal").exists()
    assert "LookupError" in (directory / "error.txt").read_text()


def test_a_bad_file_exits_2_with_all_its_errors_in_the_house_form(emul: Shell) -> None:
    text = SMALL.replace("clients: 3", "clients: many").replace("fedavg", "fedavgg").replace("20 ms", "20")
    (emul.folder / "bad.yaml").write_text(text)
    said = emul("run", "bad.yaml")
    assert said.code == 2
    assert said.out == ""
    first, *errors = said.err.splitlines()
    assert first == f"bad.yaml: {len(errors)} errors"
    assert [re.match(r"  line (\d+) ", e).group(1) for e in errors] == ["4", "5", "12"]      # type: ignore[union-attr]
    assert [e.split()[2] for e in errors] == ["topology.clients", "links[0].latency", "schemes[0].name"]
    assert errors[2].endswith('"fedavgg"  unknown scheme; did you mean "fedavg"?')
    assert not (emul.folder / "runs").exists()


@pytest.mark.parametrize(("args", "text"), [
    (["run", "nowhere.yaml"], "nowhere.yaml: 1 error"),
    (["run", "small.yaml", "--scheme", "secagg"], "expected one of its schemes: fedavg"),
    (["run", "small.yaml", "--set", "stop.round=3"], 'did you mean "rounds"?'),
    (["run", "small.yaml", "--set", "nonsense"], "nonsense"),
    (["run", "small.yaml", "--workers", "-1"], "--workers"),
    (["run", "small.yaml", "--nonsense"], "No such option"),
    (["run"], "Missing argument"),
    (["nonsense"], "No such command"),
    (["run", "small.yaml", "--set", "schemes=[failing]"], 'unknown scheme; '),
    (["run", "small.yaml", "--set", "schemes=[failing]"], "; failing.py lies here: give --plugin failing"),
    (["run", "small.yaml", "--plugin", "no_such_module", "--set", "schemes=[no_such_module]"], "cannot be imported"),
    (["run", "small.yaml", "--plugin", "no_such_module", "--set", "schemes=[no_such_module]"], "; a plug-in lies in /"),
    (["check", "small.yaml", "--plugin", "no_such_module"], '"no_such_module" cannot be imported: No module named'),
    (["check", "small.yaml", "--plugin", "broken"], 'plug-in "broken" cannot be imported: ZeroDivisionError: division'),
    (["schemes", "--plugin", "failing.py"], "--plugin failing.py: expected the name of a module, such as failing, and"),
    (["check", "small.yaml", "--plugin", "./failing.py"], "expected the name of a module, such as failing, "),
    (["replay", "nowhere"], "nowhere: no directory of a run that ended"),
    (["new-scheme", "a-b"], 'scheme name "a-b": expected a Python identifier'),
], ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_bad_input_exits_2_and_is_named_without_a_traceback(emul: Shell, args: list[str], text: str) -> None:
    said = emul(*args)
    assert (said.code, said.out) == (2, ""), said
    assert text in said.err
    assert "Traceback" not in said.err


def test_check_finds_what_a_profile_lacks(emul: Shell) -> None:
    costs = {"fedavg/client/train": [0.01, 0.0], "fedavg/server/aggregate": [0.0, 1e-9]}
    sets = ("--set", "compute={mode: profile, file: p.json}")
    (emul.folder / "p.json").write_text(json.dumps({"emul_profile": 1, "costs": costs}))
    assert emul("check", "small.yaml", *sets).code == 0
    del costs["fedavg/server/aggregate"]
    (emul.folder / "p.json").write_text(json.dumps({"emul_profile": 1, "costs": costs}))
    said = emul("check", "small.yaml", *sets)
    assert said.code == 2
    assert "fedavg/server/aggregate  has no price: make one with `emul profile" in said.err


_MENDING = '''"""Numbers are counted; where one is missing the server mends that."""
from dataclasses import dataclass

from emul.roles import Message, Node, Scheme


@dataclass(frozen=True)
class Ask(Message):
    """Server to client."""


@dataclass(frozen=True)
class Number(Message):
    """Client to server."""

    value: float


@dataclass(frozen=True)
class Params:
    pass


async def server(node, p):
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Ask())
            got = await node.gather(Number, node.clients)
            if len(got) < len(node.clients):
                await node.compute("mend", len, got)


async def client(node, p):
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            node.send(node.server, Number(1.0))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Ask, Number))
'''


def test_check_finds_what_has_no_price_where_a_client_drops_out(emul: Shell) -> None:
    (emul.folder / "mending.py").write_text(_MENDING)
    (emul.folder / "p.json").write_text(json.dumps({"emul_profile": 1, "costs": {"mending/client/x": [0.01, 0.0]}}))
    args = ("check", "small.yaml", "--plugin", "mending", "--set", "schemes=[mending]",
            "--set", "compute={mode: profile, file: p.json}")
    said = emul(*args)
    assert said.code == 2
    assert "mending/server/mend  has no price" in said.err
    (emul.folder / "p.json").write_text(json.dumps({"emul_profile": 1, "costs": {"mending/server/mend": [0.01, 0.0]}}))
    assert emul(*args).code == 0


_VARIANT = 'from emul.roles import Variant\n\nSCHEME = Variant(of="{}")\n'


def test_a_variant_may_fix_nothing_and_names_a_scheme_that_there_is(emul: Shell) -> None:
    (emul.folder / "bold.py").write_text('"""FedAvg by another name."""\n\n' + _VARIANT.format("fedavg"))
    assert emul.run("--plugin", "bold", "--set", "schemes=[bold]").code == 0
    for other, said in (("fedavgg", 'of: unknown scheme "fedavgg"; did you mean "fedavg"?'),
                        ("wrong", 'of = "wrong": expected another scheme')):
        (emul.folder / f"wrong{other}.py").write_text(_VARIANT.format(other.replace("wrong", "wrongwrong")))
        name = f"wrong{other}"
        assert said.replace('"wrong"', '"wrongwrong"') in emul(
            "run", "small.yaml", "--plugin", name, "--set", f"schemes=[{name}]").err


def test_a_violated_invariant_exits_3(emul: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "run", lambda *a, **k: [
        engine.Result("fedavg", violations=("conservation: 3 messages appeared from nowhere",)),
        engine.Result("secagg", error="Deadlock: nobody answers")])
    said = emul.run()
    assert said.code == 3                   # above a failure: the numbers of the others are in doubt too
    assert said.err.splitlines() == ["fedavg: invariant violated: conservation: 3 messages appeared from nowhere",
                                     "secagg failed: Deadlock: nobody answers"]


def test_an_interrupt_exits_130(emul: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr(engine, "run", interrupted)
    said = emul.run()
    assert said.code == 130
    assert said.err.splitlines()[-1] == "interrupted"


def test_run_says_what_was_rejected_and_of_whom(emul: Shell) -> None:
    said = emul.run("--set", "limits={max_message: 100 B}", "--set", "stop={rounds: 1}")
    assert (said.code, said.err) == (0, "warning: fedavg: in 1 of 1 completed rounds no message reached a node whose "
                                     "rounds count: the model is what it was before\n")
    assert said.out.splitlines()[-2:] == ["fedavg: runs/small-fedavg-1",
                                          "fedavg: 3 messages of server were rejected (Model: larger than max_message)"]


# --- run --------------------------------------------------------------------------------------------------------------

def test_set_seed_scheme_and_out_change_the_run_and_are_kept_with_it(emul: Shell) -> None:
    sets = ["--set", "stop.rounds=1", "--set", "schemes=[fedavg, secagg]", "--seed", "11"]
    said = emul.run(*sets, "--scheme", "fedavg", "--out", "elsewhere")
    assert said.code == 0
    assert [p.name for p in (emul.folder / "elsewhere").iterdir()] == ["small-fedavg-1"]
    resolved = (emul.folder / "elsewhere/small-fedavg-1/scenario.resolved.yaml").read_text()
    assert re.search(r"^seed: 11$", resolved, re.MULTILINE)
    assert re.search(r"rounds: 1\b", resolved)
    assert "secagg" not in resolved
    assert emul.summary("elsewhere/small-fedavg-1")["rounds"] == 1


def test_a_seed_gives_the_same_run_again_and_another_one_another(emul: Shell) -> None:
    for seed in ("1", "1", "2"):
        assert emul.run("--seed", seed, "--set", "stop.rounds=1").code == 0
    digest = [emul.summary(f"runs/small-fedavg-{n}")["digest"] for n in (1, 2, 3)]
    assert digest[0] == digest[1] != digest[2]


def test_worker_processes_do_not_change_the_run_and_replay_finds_it_identical(emul: Shell) -> None:
    assert emul.run().code == 0
    assert emul("run", "small.yaml", "--workers", "2", "--quiet").code == 0
    digest = emul.summary("runs/small-fedavg-1")["digest"]
    assert emul.summary("runs/small-fedavg-2")["digest"] == digest
    said = emul("replay", "runs/small-fedavg-2", "--workers", "0")
    assert (said.code, said.out) == (0, f"runs/small-fedavg-2: identical, digest {digest}\n")


def test_a_replay_that_differs_exits_1_and_names_the_first_difference(emul: Shell) -> None:
    assert emul.run().code == 0
    resolved = emul.folder / "runs/small-fedavg-1/scenario.resolved.yaml"
    resolved.write_text(resolved.read_text().replace("seed: 7", "seed: 8"))
    said = emul("replay", "runs/small-fedavg-1", "--workers", "0")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("runs/small-fedavg-1: ")
    assert len(said.err.splitlines()) >= 1


# --- the others -------------------------------------------------------------------------------------------------------

def test_check_finds_a_scenario_in_order_and_warns_of_rules_without_effect(emul: Shell) -> None:
    said = emul("check", str(SKELETON))
    assert (said.code, said.out, said.err) == (0, f"{SKELETON}: ok; schemes: fedavg\n", "")
    (emul.folder / "idle.yaml").write_text(SMALL.replace('match: "*", latency', 'match: "cleint*->server", latency')
                                           .replace("links: [", 'links: [{match: "*", latency: 1 ms}, '))
    said = emul("check", "idle.yaml")
    assert said.code == 0
    assert said.out.splitlines() == ['warning: links: the rule "cleint*->server" matches no link',
                                     "idle.yaml: ok; schemes: fedavg"]
    assert not (emul.folder / "runs").exists()


def test_check_asks_the_scheme_about_its_parameters(emul: Shell) -> None:
    said = emul("check", "small.yaml", "--plugin", "failing", "--set", "schemes=[{name: failing, grumble: true}]")
    assert said.code == 2
    assert "is not wanted" in said.err


def test_schemes_lists_names_with_a_line_and_tells_all_about_one(emul: Shell) -> None:
    said = emul("schemes", "--plugin", "failing")
    assert said.code == 0
    lines = said.out.splitlines()
    assert "failing: A scheme with a bug. [accuracy: global]" in lines
    assert any(line.startswith("fedavg: FedAvg with ") for line in lines)
    assert any(one.startswith("split: ") and one.endswith(", Algorithms 1 and 2. [accuracy: global]") for one in lines)
    said = emul("schemes", "secagg")
    assert said.code == 0
    assert said.out.startswith("secagg: Secure aggregation by double masking. Bonawitz et al., CCS 2017, figure 4.\n")
    assert "Protects: a client's update from the server and fewer than t colluding clients" in said.out
    assert "  threshold = none: t, shares that give a secret" in said.out
    assert said.out.endswith("  adversary = semi_honest: semi_honest | active\n\nTo cite: emul cite secagg\n")
    said = emul("schemes", "adpsgd")
    assert "Protects: nothing." in said.out
    assert "  timeout = 10 s: the time that an answer is waited for" in said.out
    assert emul("schemes", "secag").err == 'unknown scheme "secag"; did you mean "secagg"?\n'


def test_profile_writes_what_a_scenario_can_use(emul: Shell) -> None:
    said = emul("profile", "small.yaml", "-o", "small.json", "--repeat", "1", "--set", "stop.rounds=1")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "written: small.json"
    costs = json.loads((emul.folder / "small.json").read_text())["costs"]
    assert sorted(costs) == ["fedavg/client/train", "fedavg/server/aggregate"]
    assert all(a >= 0 and b >= 0 for a, b in costs.values())
    assert emul.run("--set", "compute={mode: profile, file: small.json}").code == 0
    virtual = emul.summary("runs/small-fedavg-1")["virtual_seconds"]
    assert emul.run().code == 0
    assert virtual > emul.summary("runs/small-fedavg-2")["virtual_seconds"]        # type: ignore[operator]


@pytest.mark.parametrize("said", ["mode: profile, file: not-made-yet.json", "mode: zero",
                                  "mode: profile, file: not-yet.json, default: 1 ms", "mode: model, default: zero"])
def test_profile_measures_on_the_device_of_the_scenario(emul: Shell, said: str,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(engine, "profile", lambda plan, *_, **__: asked.append(plan.compute) or {})     # type: ignore
    assert emul("profile", "small.yaml", "-o", "small.json", "--set", f"compute={{{said}, device: cuda}}").code == 0
    assert [(one.mode, one.device, one.file) for one in asked] == [("measured", "cuda", None)]


def test_a_profile_that_lacks_a_computation_fails_the_run_and_names_the_command(emul: Shell) -> None:
    (emul.folder / "empty.json").write_text('{"emul_profile": 1, "costs": {}}')
    said = emul.run("--set", "compute={mode: profile, file: empty.json}")
    assert said.code == 1
    assert "make one with `emul profile SCENARIO -o FILE`" in said.err


def test_new_scheme_says_what_it_has_written_and_how_to_run_it(emul: Shell) -> None:
    said = emul("new-scheme", "mine", "--dir", "sub")
    assert said.code == 0
    assert said.out.splitlines() == ["written: sub/mine.py", "written: sub/mine.yaml", "written: sub/test_mine.py",
                                     "run it:  cd sub && emul run mine.yaml --plugin mine",
                                     "test it:  pip install pytest && cd sub && python -m pytest test_mine.py"]
    assert emul("new-scheme", "mine").out.splitlines()[-2] == "run it:  emul run mine.yaml --plugin mine"


def test_version_and_help(emul: Shell) -> None:
    assert emul("--version") == Said(0, f"emul {__version__}\n", "")
    said = emul("--help")
    assert said.code == 0
    for command in ("run", "check", "profile", "replay", "schemes", "new-scheme"):
        assert re.search(rf"^  {command} ", said.out, re.MULTILINE), said.out


def test_python_m_emul_is_the_same_program(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "emul", "--version"], capture_output=True, text=True, cwd=tmp_path,
                          check=False)
    assert (done.returncode, done.stdout) == (0, f"emul {__version__}\n")
