"""The small scenario that every scheme has to show itself by: one base, and what a scheme needs otherwise.

Documents print it, `emul recovery` and the conformance check run it. Five clients at one server train a logistic
regression on the digits, and a tenth of their updates is lost: a scheme differs from its neighbours in the fewest
lines, so that two printed examples can be read beside each other. The text is a whole scenario that can be copied.
"""

from __future__ import annotations

from collections.abc import Sequence

_WIDTH = 112


def lossy(match: str = "client*->server*", p: float = 0.1, per: str = "round") -> str:
    """A rule for links that lose what crosses them with probability `p`, drawn once a round or once a message."""
    return f'match: "{match}", outage: {{model: bernoulli, p: {p}, per: {per}}}'


def example(name: str, entry: str = "", *, topology: str = "star, clients: 5", bandwidth: str = "20 Mbit/s",
            links: Sequence[str] = (lossy(),), data: str = "set: digits", task: Sequence[str] = (),
            partition: str = "{dirichlet: 0.5}", model: str = "logistic",
            solver: str = "lr: 0.1, steps: 1, batch: 16", sections: str = "", rounds: int = 3) -> str:
    """A scenario of the scheme `name` with the parameters of `entry`, "deadline: 1 s" say; the rest as YAML, too.

    topology: its generator and what that takes. links: rules after that of all links. task: further
    keys. sections: further sections, "faults: ..." say.

    >>> print(example("fedavg", "deadline: 1 s"))
    <BLANKLINE>
    emul: 1
    name: fedavg
    seed: 7
    topology: {generator: star, clients: 5}
    links:
      - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
      - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
    task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
           solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
    compute: {mode: zero}
    schemes: [{name: fedavg, deadline: 1 s}]
    stop: {rounds: 3}
    <BLANKLINE>
    """
    every = f'match: "*", latency: 20 ms, bandwidth: {bandwidth}'
    rules = "".join(f"\n  - {{{rule}}}" for rule in (every, *links)) if links else f" [{{{every}}}]"
    keys = [f"data: {{{data}}}", *task, f"partition: {partition}", f"model: {model}", f"solver: {{sgd: {{{solver}}}}}"]
    return f"""
emul: 1
name: {name}
seed: 7
topology: {{generator: {topology}}}
links:{rules}
task: {{{_filled(keys, indent=7)}}}
compute: {{mode: zero}}
schemes: [{f"{{name: {name}, {entry}}}" if entry else name}]
{sections.strip() + chr(10) if sections else ""}stop: {{rounds: {rounds}}}
"""


def _filled(keys: Sequence[str], indent: int) -> str:
    """The keys after one another, and on a new line, that far in, where a line gets too long to read."""
    lines = [keys[0]]
    for key in keys[1:]:
        if indent + len(lines[-1]) + len(key) > _WIDTH - 3:
            lines.append(key)
        else:
            lines[-1] += f", {key}"
    return f",\n{' ' * indent}".join(lines)
