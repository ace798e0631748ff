"""Linear schemes: what T colluders and the server hold determines nothing of the others' inputs but the sum.

Everything that travels is linear in what the clients have drawn and learnt, so a view is a matrix over the field: a row
a number seen, a column an element of somebody's input, mask or randomness. The functions of the inputs that it
determines are the rows' combinations without a part in masks and randomness:

    dim = rank(view) - rank(view without the columns of the inputs)

The colluders' own inputs count among them. The rows are read off the roles' own coding functions, one unit vector
at a time; a vector has one element a segment. A test that views look random would pass for most leaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from emul.primitives.codes.packed import Code, lagrange_code, roots_code
from emul.primitives.field import P31, rank
from emul.schemes.fastsecagg.product import ProductCode, product_code
from emul.schemes.swiftagg_plus.rules import Seating, seat


class View:
    """Rows over the columns (client, kind, k): kinds "x" (inputs), "z" (masks) and "r" (randomness of a code)."""

    def __init__(self, clients: Sequence[int], sizes: dict[str, int], p: int):
        self.p, self.sizes = p, sizes
        self.columns = [(i, kind, k) for i in clients for kind, size in sizes.items() for k in range(size)]
        self._place = {column: at for at, column in enumerate(self.columns)}
        self.rows: list[np.ndarray] = []

    def row(self, parts: dict[tuple[int, str], Any]) -> np.ndarray:
        """{(client, kind): its coefficients} as a row."""
        row = np.zeros(len(self.columns), np.int64)
        for (i, kind), values in parts.items():
            for k, value in enumerate(values):
                row[self._place[i, kind, k]] = int(value) % self.p
        return row

    def see(self, *rows: np.ndarray) -> None:
        self.rows += rows

    def see_all_of(self, i: int) -> None:
        """A colluder's own: input, mask, randomness."""
        for kind, size in self.sizes.items():
            self.see(*(self.row({(i, kind): unit}) for unit in np.eye(size, dtype=np.int64)))

    def determined(self) -> int:
        """The dimension of what the view says of the inputs."""
        matrix = np.stack(self.rows)
        hidden = [at for at, (_, kind, _) in enumerate(self.columns) if kind != "x"]
        return rank(matrix, self.p) - (rank(matrix[:, hidden], self.p) if hidden else 0)


def shares(code: Code) -> tuple[np.ndarray, np.ndarray]:
    """What `encode` does, by unit vectors: (n, segments) for the secrets, (n, randomness)."""
    unit = np.eye(code.segments + code.randomness, dtype=np.uint32)
    matrix = code.encode(list(unit)).astype(np.int64)
    return matrix[:, :code.segments], matrix[:, code.segments:]


# --- LightSecAgg, FastSecAgg ------------------------------------------------------------------------------------------

def coded_mask_view(code: Code, colluders: Sequence[int], n: int, sets: Sequence[tuple[list[int], list[int]]],
                    ) -> View:
    """The server's and the colluders' view of one round. sets: (U2, who answered it), one for each that is shown."""
    S, R = shares(code)
    view = View(range(n), {"x": code.segments, "z": code.segments, "r": code.randomness}, code.p)
    unit = np.eye(code.segments, dtype=np.int64)
    for i in range(n):                                                              # masked inputs
        view.see(*(view.row({(i, "x"): u, (i, "z"): u}) for u in unit))
    for c in colluders:                                                             # what they drew and what they got
        view.see_all_of(c)
        view.see(*(view.row({(i, "z"): S[c], (i, "r"): R[c]}) for i in range(n)))
    for U2, holders in sets:                                                        # answers
        view.see(*(view.row({(i, kind): part[j] for i in U2 for kind, part in (("z", S), ("r", R))})
                   for j in holders))
    return view


MASKS = [lagrange_code(6, 2, 2), roots_code(6, 2, 2), lagrange_code(7, 4, 1),
         product_code(12, (3, 4), (0, 1), 2), product_code(20, (4, 5), (1, 1), 3)]


@pytest.mark.parametrize("code", MASKS, ids=lambda code: f"{type(code).__name__}-{code.n}")
@pytest.mark.parametrize("seed", range(4))
def test_masks_hide_all_but_the_sum(code: Code, seed: int) -> None:
    """Two clients may have dropped out before their masked input was in time; it came late, so the server saw it."""
    T = {12: 2, 20: 3}.get(code.n, code.randomness)
    rng = np.random.default_rng(seed)
    colluders = rng.choice(code.n, T, replace=False).tolist()
    U2 = sorted(rng.choice(code.n, code.n - 2, replace=False).tolist())
    view = coded_mask_view(code, colluders, code.n, [(U2, U2)])
    assert view.determined() == code.segments * (T + 1)         # the colluders' own and the sum over U2


@pytest.mark.parametrize("code", MASKS[:3], ids=lambda code: f"{type(code).__name__}-{code.n}")
def test_one_colluder_more_learns_something(code: Code) -> None:
    T = code.randomness
    view = coded_mask_view(code, range(T + 1), code.n, [(list(range(code.n)), list(range(code.n)))])
    assert view.determined() > code.segments * (T + 2)


def test_a_server_that_shows_two_sets_to_two_halves_learns_a_single_input() -> None:
    """n = 10, U = 5: 2 U <= n, which `check` refuses. With U = 6 the halves cannot both decode.

    They are not silent either: between T and U answers of a set say something of its masks. Only n - U <= T is safe
    from such a server, which is active.
    """
    everybody = list(range(10))
    for U, T, first, learnt in ((5, 1, 5, 4 + 4), (6, 1, 6, 5 + 4 - 1), (6, 4, 6, 2)):
        code = lagrange_code(10, U - T, T)
        view = coded_mask_view(code, [], 10, [(everybody, everybody[:first]), (everybody[:-1], everybody[first:])])
        assert view.determined() == learnt


def test_an_answer_to_two_sets_tells_them_apart() -> None:
    """Hence a client answers once a round."""
    code, everybody = lagrange_code(6, 2, 2), list(range(6))
    view = coded_mask_view(code, [], 6, [(everybody, everybody), (everybody[:-1], everybody)])
    assert view.determined() == 2 * code.segments


def test_randomness_in_a_square_corner_leaks() -> None:
    """FastSecAgg with T = 4 random values in a corner box: T holders on a line of the grid learn something."""
    corner = frozenset((i, j) for i in range(2) for j in range(2))
    line, everybody = [0, 5, 10, 15], list(range(20))
    sound = product_code(20, (4, 5), (0, 0), 4)
    naive = ProductCode(20, (4, 5), (4, 5), corner)
    assert {u % 5 for u in line} == {0}
    for code, leaks in ((sound, False), (naive, True)):
        view = coded_mask_view(code, line, 20, [(everybody, everybody)])
        assert (view.determined() > code.segments * 5) == leaks


# --- SwiftAgg+ --------------------------------------------------------------------------------------------------------

def coded_input_view(code: Code, seating: Seating, colluders: Sequence[int]) -> View:
    """The server's and the colluders' view of a round in which everything arrives."""
    S, R = shares(code)
    n = sum(map(len, seating.groups))
    view = View(range(n), {"x": code.segments, "r": code.randomness}, code.p)

    def share(s: int, whose: Sequence[int]) -> np.ndarray:
        return view.row({(i, kind): part[s] for i in whose for kind, part in (("x", S), ("r", R))})

    so_far: list[int] = []
    for g, group in enumerate(seating.groups):
        for s, holder in enumerate(seating.seats(g)):
            if holder in colluders:
                view.see(*(share(s, [i]) for i in group), share(s, so_far))
        so_far = [*so_far, *group]
    for c in colluders:
        view.see_all_of(c)
    view.see(*(share(s, so_far) for s in range(seating.size)))
    return view


@pytest.mark.parametrize(("n", "K", "T", "D"), [(12, 2, 1, 1), (13, 2, 2, 1), (15, 3, 2, 0), (11, 1, 3, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_chains_hide_all_but_the_sum_wherever_T_colluders_sit(n: int, K: int, T: int, D: int, seed: int) -> None:
    code, seating = lagrange_code(K + T + D, K, T), seat(range(n), K + T + D)
    rng = np.random.default_rng(seed)
    seats = [i for g in range(len(seating.groups)) for i in seating.seats(g)]
    for colluders in (rng.choice(seats, T, replace=False).tolist(), list(seating.seats(0)[:T]),
                      list(seating.seats(len(seating.groups) - 1)[:T])):
        assert coded_input_view(code, seating, colluders).determined() == K * (T + 1)


@pytest.mark.parametrize(("T", "colluders"), [(1, 2), (2, 3)])
def test_one_colluder_more_in_a_group_learns_something(T: int, colluders: int) -> None:
    code, seating = lagrange_code(2 + T + 1, 2, T), seat(range(12), 2 + T + 1)
    view = coded_input_view(code, seating, seating.seats(1)[:colluders])
    assert view.determined() > 2 * (colluders + 1)


def test_without_randomness_one_seat_reads_along() -> None:
    """T = 0, which is a warning."""
    code, seating = lagrange_code(3, 2, 0), seat(range(6), 3)
    assert coded_input_view(code, seating, [seating.seats(0)[0]]).determined() > 2 * 2


def test_the_counting_itself() -> None:
    """Two clients, one element: masked inputs say nothing, with a mask beside them the input, sums the sum."""
    view = View([0, 1], {"x": 1, "z": 1}, P31)
    view.see(view.row({(0, "x"): [1], (0, "z"): [1]}), view.row({(1, "x"): [1], (1, "z"): [1]}))
    assert view.determined() == 0
    view.see(view.row({(0, "z"): [1], (1, "z"): [1]}))
    assert view.determined() == 1
    view.see(view.row({(1, "z"): [5]}))
    assert view.determined() == 2
