from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.base import units
from emul.base.units import bandwidth_bps, duration_ns, probability, size_bytes


@pytest.mark.parametrize(("text", "ns"), [
    ("20 ms", 20_000_000), ("20ms", 20_000_000), ("1 h", 3_600_000_000_000), ("1.5 min", 90_000_000_000),
    ("0.1 s", 100_000_000), ("1e-9 s", 1), ("3 µs", 3000), ("3 us", 3000), ("2 d", 172_800_000_000_000),
    (" 7 ns ", 7), ("0", 0), (0, 0), (0.0, 0), ("0 s", 0), ("4.611686018427387903 Gs", 2**62 - 1)])
def test_durations_are_exact_nanoseconds(text, ns):
    assert duration_ns(text) == ns
    assert type(duration_ns(text)) is int


@pytest.mark.parametrize(("text", "bps"), [
    ("20 Mbit/s", 20_000_000), ("2 MB/s", 16_000_000), ("20 Mbps", 20_000_000), ("1 Gbit/s", 10**9),
    ("3 Mbit / s", 3_000_000), ("1 KiB/s", 8192), ("86400 bit/day", 1),
    # as tools write them: bytes are eight times bits
    ("8 MBps", 64_000_000), ("8 kBps", 64_000), ("8 Bps", 64), ("8 bps", 8), ("8 GBps", 64 * 10**9),
    ("8 mbps", 8_000_000), ("8 Kbps", 8000), ("8 gbps", 8 * 10**9), ("8 Mbits/sec", 8_000_000), ("8 Mbit", 8_000_000),
    ("8 KiBps", 65536), ("8 MiBps", 8 << 23), ("8 Kibit/s", 8192), ("8 bytes/s", 64), ("8 MBytes/s", 64_000_000)])
def test_bandwidths_are_exact_bits_per_second(text, bps):
    assert bandwidth_bps(text) == bps


@pytest.mark.parametrize(("text", "size"), [
    ("1 GB", 10**9), ("1 MiB", 2**20), ("1.5 kB", 1500), ("8 kbit", 1000), ("12 B", 12), ("3 bytes", 3)])
def test_sizes_are_exact_bytes(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize(("parse", "value", "message"), [
    (duration_ns, 20, "expected a duration such as 20 ms or 1 h: the unit is missing"),
    (duration_ns, "20", "expected a duration such as 20 ms or 1 h: the unit is missing"),
    (duration_ns, "-1 ms", "expected a duration such as 20 ms or 1 h, not negative"),
    (duration_ns, -1, "expected a duration such as 20 ms or 1 h"),
    (duration_ns, True, "expected a duration such as 20 ms or 1 h"),
    (duration_ns, None, "expected a duration such as 20 ms or 1 h"),
    (duration_ns, float("nan"), "expected a duration such as 20 ms or 1 h"),
    (duration_ns, float("inf"), "expected a duration such as 20 ms or 1 h"),
    (duration_ns, "inf s", "expected a duration such as 20 ms or 1 h"),
    (duration_ns, "nan s", "expected a duration such as 20 ms or 1 h"),
    (duration_ns, "0.5 ns", "expected a duration such as 20 ms or 1 h, in whole nanoseconds"),
    (duration_ns, "1e99 s", "expected a duration such as 20 ms or 1 h, below 2^62 nanoseconds (146 years)"),
    (duration_ns, "5000000000 s", "expected a duration such as 20 ms or 1 h, below 2^62 nanoseconds (146 years)"),
    (size_bytes, "9.3 EB", "expected a size such as 1 MB or 64 KiB, below 2^63 bytes"),
    (duration_ns, "20 m", 'expected a duration such as 20 ms or 1 h; "m" is no such unit; did you mean ms or min?'),
    (duration_ns, "1 s**9", 'expected a duration such as 20 ms or 1 h; "s**9" is no such unit'),
    (bandwidth_bps, "20 Mb/s",
     'expected a bandwidth such as 20 Mbit/s or 2 MB/s; "Mb/s" is no such unit; did you mean Mbit/s or MB/s?'),
    (bandwidth_bps, "20 MHz", 'expected a bandwidth such as 20 Mbit/s or 2 MB/s; "MHz" is no such unit'),
    (bandwidth_bps, "2 MBPS",
     'expected a bandwidth such as 20 Mbit/s or 2 MB/s; "MBPS" is no such unit; did you mean Mbit/s or MB/s?'),
    (bandwidth_bps, "2 KBps",
     'expected a bandwidth such as 20 Mbit/s or 2 MB/s; "KBps" is no such unit; did you mean kB/s or KiB/s?'),
    (bandwidth_bps, "2 mBps",
     'expected a bandwidth such as 20 Mbit/s or 2 MB/s; "mBps" is no such unit; did you mean MB/s?'),
    (bandwidth_bps, 20_000_000, "expected a bandwidth such as 20 Mbit/s or 2 MB/s: the unit is missing"),
    (size_bytes, "1 KB", 'expected a size such as 1 MB or 64 KiB; "KB" is no such unit; did you mean kB or KiB?'),
    (size_bytes, "1 bit", "expected a size such as 1 MB or 64 KiB, in whole bytes"),
    (size_bytes, "3 radian", 'expected a size such as 1 MB or 64 KiB; "radian" is no such unit'),
    (probability, 1.4, "expected a probability in [0, 1]"),
    (probability, -0.1, "expected a probability in [0, 1]"),
    (probability, "130%", "expected a probability in [0, 1]"),
    (probability, True, "expected a probability in [0, 1]"),
    (probability, float("nan"), "expected a probability in [0, 1]"),
    (probability, "0.3", "expected a probability in [0, 1]"),
])
def test_what_is_no_quantity_is_refused_with_what_is_expected(parse, value, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        parse(value)
    assert str(error.value) == message


def test_a_probability_is_a_number_or_a_percentage():
    assert [probability(v) for v in (0, 1, 0.3, "30%", "0.5 %", "100%")] == [0.0, 1.0, 0.3, 0.3, 0.005, 1.0]


@given(st.decimals(min_value=0, max_value=4 * 10**6, places=6, allow_nan=False))
def test_a_decimal_number_of_seconds_is_never_rounded(seconds: Decimal):
    assert duration_ns(f"{seconds:f} s") == Fraction(seconds) * 10**9
    assert duration_ns(f"{seconds:f} ks") == Fraction(seconds) * 10**12


@pytest.mark.parametrize(("parse", "show"), [
    (duration_ns, units.format_duration), (size_bytes, units.format_size), (bandwidth_bps, units.format_bandwidth)])
@given(n=st.integers(0, 2**62 - 1) | st.integers(0, 10**7) | st.integers(0, 2**20).map(lambda n: n * 1024)
       | st.integers(0, 10**5).map(lambda n: n * 60 * 10**9))
def test_what_is_formatted_reads_back_exactly(parse, show, n):
    assert parse(show(n)) == n


@pytest.mark.parametrize(("show", "n", "text"), [
    (units.format_duration, 0, "0 ns"), (units.format_duration, 1_234_567, "1.234567 ms"),
    (units.format_duration, 60 * 10**9, "1 min"), (units.format_size, 1024, "1 KiB"), (units.format_size, 1000, "1 kB"),
    (units.format_size, 2**20 + 1, "1.048577 MB"), (units.format_bandwidth, 2_500_000, "2.5 Mbit/s")])
def test_quantities_are_shown_in_the_unit_a_person_would_choose(show, n, text):
    assert show(n) == text


@given(st.text(max_size=40))
def test_garbage_raises_nothing_but_value_errors(text):
    for parse in (duration_ns, bandwidth_bps, size_bytes, probability):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert str(error).startswith("expected ")  # noqa: PT017 - most texts raise, a few are quantities


@pytest.mark.parametrize("unit", sorted(units._USUAL))
def test_usual_units_are_those_of_pint(unit: str) -> None:
    root = units._registry().Quantity(Fraction(1), units._registry().parse_units(unit)).to_root_units()
    assert units._factor(unit) == (root.magnitude, tuple(sorted((n, int(p)) for n, p in root.unit_items())))
