"""What EBS-CFL does not hide: acceptance check 15 of its specification, kept so that no one documents the opposite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from masked_round import Masked, masked_round

from emul import engine
from emul.engine.reopening import attack
from emul.roles.evidence import NotKept
from emul.scenario import loads
from emul.schemes import ebs_cfl
from emul.schemes.ebs_cfl import attacks as masking
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.blocks import Shape
from emul.schemes.ebs_cfl.masking.keys import draw_keys


def gamma_of(found: Masked) -> np.ndarray:
    return rounds.gammas(found.shape, found.keys.A, rounds.directions(found.references), "joint")[0]


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return abs(float(np.corrcoef(a, b)[0, 1]))


@pytest.mark.parametrize(("n", "m", "l", "t"), [(6, 2, 400, 2), (5, 3, 500, 2), (4, 1, 300, 4), (4, 2, 300, 3)])
def test_15_one_round_gives_every_cosine_cluster_and_update(n: int, m: int, l: int, t: int) -> None:  # noqa: E741
    for seed in range(3):
        found = masked_round(n, m, l, t, seed=seed)
        keys, truth = found.server, found.plain()
        for k, (i, encoded) in enumerate(found.alphas()[0].items()):
            leak = masking.by_eigenvectors(keys, i, encoded, found.uploads[i])
            assert abs(leak.cosine - truth.cosines[k]) < 1e-10
            cluster, update = masking.opened(found.shape, keys.A, leak.payload)
            assert cluster == found.clusters[i]
            assert np.abs(update - rounds.unit(found.updates[i])).max() < 1e-9


def test_15_an_update_against_its_reference_is_recovered_too() -> None:
    found = masked_round(5, 2, 400, 2, pull=-1.0)
    keys = found.server
    for i, encoded in found.alphas()[0].items():
        leak = masking.by_eigenvectors(keys, i, encoded, found.uploads[i])
        assert leak.cosine < 0
        assert np.abs(masking.opened(found.shape, keys.A, leak.payload)[1] - rounds.unit(found.updates[i])).max() < 1e-9


def test_the_masks_of_re_keying_hide_one_constant_a_column() -> None:
    found = masked_round(5, 2, 400, 2, skt_mask="zero_sum")
    keys = found.server
    for i, encoded in found.alphas()[0].items():
        leak = masking.by_eigenvectors(keys, i, encoded, found.uploads[i])
        X = found.shape.segment(rounds.unit(found.updates[i])) @ keys.A[found.clusters[i]]
        off = leak.payload - X
        assert np.abs(off - off.mean(axis=0)).max() < 1e-9


def test_alpha_keys_alone_give_the_update() -> None:
    found = masked_round(6, 2, 400, 2, pull=1.0)
    Gamma = gamma_of(found)
    for k, (i, delta) in enumerate(found.uploads.items()):
        leak = masking.by_alpha_keys(rounds.compact(found.keys.members[i], Gamma, 0), Gamma, delta)
        cluster, update = masking.opened(found.shape, found.keys.A, leak.payload)
        assert cluster == found.clusters[i]
        assert abs(leak.cosine - found.plain().cosines[k]) < 1e-9
        assert np.abs(update - rounds.unit(found.updates[i])).max() < 1e-9


def decoded_singly(zeta: str, sigma: float = 1.0, skt_mask: str = "off", centred: bool = False) -> list[float]:
    """|correlation| of what the aggregate's decode key gives of each upload with its update."""
    found = masked_round(8, 2, 800, 2, zeta=zeta, sigma=sigma, skt_mask=skt_mask, pull=1.0)     # type: ignore[arg-type]
    total, keys, result = found.trusts()[0], found.server, []
    for i, delta in found.uploads.items():
        leak = masking.by_decode_key(keys, i, total, delta).payload
        payload = leak - leak.mean(axis=0) if centred else leak
        mine = found.shape.flatten(payload @ keys.A[found.clusters[i]].T)
        result.append(correlation(mine, found.updates[i]))
    return result


def test_15_with_zero_sum_zeta_the_aggregate_s_key_decodes_each_upload() -> None:
    assert min(decoded_singly("zero_sum")) > 0.999
    assert min(decoded_singly("zero_sum", skt_mask="zero_sum", centred=True)) > 0.99
    assert max(decoded_singly("traceless")) < 0.8
    assert max(decoded_singly("traceless", sigma=30.0)) < 0.2


def test_two_rounds_give_the_block_and_the_change_of_weight() -> None:
    keys = draw_keys(Shape(5, 2, 300, 2), 3)
    rounds_ = [masked_round(5, 2, 300, 2, seed=3, keys=keys, number=k) for k in (1, 2)]
    server = rounds_[0].server
    weights = [found.plain().weights for found in rounds_]
    for i in range(5):
        change, M1 = masking.by_two_rounds(server, i, *(found.alphas()[0][i] for found in rounds_))
        assert abs(change - (weights[1][i] - weights[0][i])) < 1e-9
        true = keys.members[i].relu.M1
        assert min(np.abs(M1 - true).max(), np.abs(M1 + true).max()) < 1e-6


def test_blind_separation_finds_the_segments_of_an_update_without_keys() -> None:
    found = masked_round(2, 2, 8_000, 2, laplace=True, pull=0.0)
    columns = masking.by_separation(found.uploads[0])
    segments = found.shape.segment(rounds.unit(found.updates[0]))
    for column in segments.T:
        assert max(correlation(column, each) for each in columns.T) > 0.95


def test_a_cosine_of_zero_hides_nothing_and_what_is_no_encoding_is_told() -> None:
    found = masked_round(3, 2, 40, 2)
    a, beta = found.keys.members[0].relu, found.server.beta[0]
    x, M1 = masking.split(0.0 * a.phi + a.psi, beta)
    assert abs(x) < 1e-6
    assert np.abs(M1 - a.M1).max() < 1e-9
    with pytest.raises(ValueError, match="no two families"):
        masking.split(np.eye(len(a.phi)), beta)


# --- on a run ---------------------------------------------------------------------------------------------------------

def recorded(tmp_path: Path, params: str) -> Path:
    text = ebs_cfl.EXAMPLE.replace("dealer_timeout: 500 ms", f"dealer_timeout: 500 ms{params}") + \
        "record: {payloads: [References, ServerKeySet, AlphaKeys, Models, Upload]}\n"
    result, = engine.run(loads(text, "t", check=True), workers=0, out=tmp_path)
    assert result.directory is not None
    return result.directory


@pytest.mark.parametrize(("params", "by"), [("", "eigen"), ("", "keys"),
                                            (", zeta: zero_sum, recovery: standin", "decode_key")])
def test_emul_attack_reads_updates_and_clusters_of_a_run(tmp_path: Path, params: str, by: str) -> None:
    rows = attack(recorded(tmp_path, params), "unmask", {"by": by}).rows
    assert len(rows) >= 8
    assert rows.right.all()
    assert rows.correlation.min() > 0.999


def test_emul_attack_reads_them_from_the_change_between_two_rounds(tmp_path: Path) -> None:
    rows = attack(recorded(tmp_path, ""), "unmask", {"by": "two_rounds"}).rows
    assert len(rows) >= 3
    assert set(rows["round"]) == {2}
    assert rows.right.all()
    assert rows.correlation.min() > 0.999


def test_emul_attack_separates_uploads_without_a_key(tmp_path: Path) -> None:
    """325 rows each: columns that are independent of the update's would have 0.15."""
    rows = attack(recorded(tmp_path, ""), "unmask", {"by": "separation"}).rows
    assert len(rows) >= 8
    assert rows.correlation.min() > 0.4
    assert rows.correlation.mean() > 0.6
    rng = np.random.Generator(np.random.Philox(key=5))
    assert masking.likeness(rng.standard_normal((325, 11)), rng.standard_normal((325, 2))) < 0.25


def test_emul_attack_says_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(NotKept, match="this attack reads q: 1"):
        attack(recorded(tmp_path, ", q: 2, recovery: standin"), "unmask", {})
