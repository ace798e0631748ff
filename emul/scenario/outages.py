"""`outage` of a link: its model, the specification it stands for, and back to YAML.

An outage is declared twice, here for what may be written and in `emul.network.models.outages` for what it is. One
declaration for both says less to the user. It was tried: pydantic told the five dataclasses apart by `model`. Of 188
mistakes in `tests/scenario/frozen/sections.yaml` 48 were told worse or not at all, because a misspelt `model` hides
all else and because a rule about two keys (`slot` without `per: slot`) is none of pydantic's annotations. Every worker
would import pydantic besides, 0.09 s of processor time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, PlainValidator

from emul.base.units import bandwidth_bps
from emul.network.models.outages import (
    SPANS,
    UNITS,
    AnyOutage,
    FadingSpec,
    GilbertSpec,
    LossTraceSpec,
    OnOffSpec,
    OutageSpec,
)
from emul.scenario.sections import (
    Flag,
    Probability,
    Section,
    Stay,
    Text,
    Written,
    absolute,
    duration_text,
    given,
    number,
    one_of,
    without_none,
)
from emul.scenario.wording import MISSING, Finding

GEMODEL = "gemodel"             # netem's name of gilbert_elliott

# model -> (keys that it needs, further keys that it uses); all use `model`, and `span` where time matters
_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bernoulli": (("p",), ("per", "slot", "span")),
    "gilbert": (("p",), ("r", "loss_bad", "per", "slot", "start", "span")),
    "gilbert_elliott": (("p",), ("r", "loss_bad", "loss_good", "per", "slot", "start", "span")),
    "on_off": (("up", "down"), ("start", "span")),
    "fading": (("coherence", "snr"), ("rate", "bandwidth", "spectral_efficiency", "span")),
    "trace": (("file",), ("loop", "span")),
}
_STARTS = {"gilbert": ("good", "stationary"), "gilbert_elliott": ("good", "stationary"),
           "on_off": ("stationary", "up")}
_DECIBELS = re.compile(r"([+-]?\d{1,3}(?:\.\d{1,9})?) ?dB", re.ASCII)
_HERTZ = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ?([kMG]?)Hz", re.ASCII)


def _snr(value: object) -> float:
    match = _DECIBELS.fullmatch(value.strip()) if isinstance(value, str) else None
    result = 10 ** (float(match[1]) / 10) if match else value
    if isinstance(result, bool) or not isinstance(result, (int, float)) or not 1e-30 <= result <= 1e30:
        raise ValueError("expected a ratio such as 10 dB or 10")
    return float(result)


def _hertz(value: object) -> float:
    match = _HERTZ.fullmatch(value.strip()) if isinstance(value, str) else None
    result = float(match[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[match[2]] if match else 0
    if result <= 0:
        raise ValueError("expected the width of a channel such as 20 MHz")
    return result


def _rate(value: object) -> int:
    rate = bandwidth_bps(value)
    if rate == 0:
        raise ValueError("expected a rate above 0, such as 20 Mbit/s")
    return rate


class OutageSection(Section):
    # `bernoulli`, `gilbert`, `gilbert_elliott` (or `gemodel`), `on_off`, `fading` or `trace`.
    model: Annotated[str, one_of(*_KEYS, GEMODEL, what="model")]
    # [needed] `bernoulli`: the probability of a loss. Chains: of a change from good to bad, at each step.
    p: Probability | None = None
    # [1 - `p`] Chains: of a change from bad to good.
    r: Probability | None = None
    # [1] Chains: the probability of a loss in the bad state.
    loss_bad: Annotated[Probability | None, Field(alias="1-h")] = None
    # [0] `gilbert_elliott`: the probability of a loss in the good state.
    loss_good: Annotated[Probability | None, Field(alias="1-k")] = None
    # [message] `bernoulli` and chains: the unit that shares a fate, or is a step: `message`, `packet`, `round` or
    # `slot`.
    per: Annotated[str, one_of(*UNITS, what="unit of outage")] | None = None
    # The length of a slot, for `per: slot`.
    slot: Stay | None = None
    # [at_start] For models whose state changes with time: the fate of a message that meets a change.
    span: Annotated[str, one_of(*SPANS, what="span")] | None = None
    # [`good`; `stationary`] Chains: the first state, `good` or drawn by the `stationary` law. `on_off`: `up`, or
    # drawn.
    start: Annotated[str, one_of("good", "up", "stationary", what="start")] | None = None
    # [needed] `on_off`: the mean times in either state, exponential, of virtual time.
    up: Stay | None = None
    # [needed] `on_off`: the mean times in either state, exponential, of virtual time.
    down: Stay | None = None
    # [needed] `fading`: how long the channel stays what it is.
    coherence: Stay | None = None
    # [needed] `fading`: the mean signal-to-noise ratio, `10 dB` or `10`.
    snr: Annotated[float, PlainValidator(_snr, json_schema_input_type=float | str)] | None = None
    # `fading`: the rate of the sender, such as `20 Mbit/s`, over a channel of `10 MHz`.
    rate: Annotated[int, PlainValidator(_rate, json_schema_input_type=Written)] | None = None
    # `fading`: the rate of the sender, such as `20 Mbit/s`, over a channel of `10 MHz`.
    bandwidth: Annotated[float, PlainValidator(_hertz, json_schema_input_type=str)] | None = None
    # `fading`: their quotient, in bit/s/Hz, in their place.
    spectral_efficiency: Annotated[float, number("bit/s/Hz, above 0, at most 1000", lambda x: 0 < x <= 1000)] | None = (
        None)
    # [needed] `trace`: a CSV file.
    file: Text | None = None
    # [false] `trace`: it begins anew at the time of its last row, whose value then has no meaning.
    loop: Flag | None = None

    @property
    def kind(self) -> str:
        """The model, by one name where two are the same."""
        return "gilbert_elliott" if self.model == GEMODEL else self.model

    def wrong(self) -> list[Finding]:
        """Keys that its model needs and has not, or has and does not use; else units and values that do not go
        together."""
        needs, uses = _KEYS[self.kind]
        names = [name for name in type(self).model_fields if name != "model"]
        found: list[Finding] = [((_key(name),), MISSING, f"is needed by model: {self.model}")
                                for name in needs if getattr(self, name) is None]
        found += [((_key(name),), "", f"is not used by model: {self.model}")
                  for name in given(self, *names) if name not in needs + uses]
        return found or self._unit() + self._details()

    def _unit(self) -> list[Finding]:
        if "per" not in _KEYS[self.kind][1]:
            return []
        if self.per == "slot" and self.slot is None:
            return [(("slot",), MISSING, "is needed by per: slot, a duration such as 100 ms")]
        return [((name,), "", "is used only with per: slot")
                for name in (given(self, "slot", "span") if self.per != "slot" else ())]

    def _details(self) -> list[Finding]:
        starts = _STARTS.get(self.kind, ())
        if self.start is not None and self.start not in starts:
            return [(("start",), "", f"expected one of {', '.join(starts)}")]
        if self.kind != "fading":
            return []
        forms = given(self, "rate", "bandwidth"), given(self, "spectral_efficiency")
        if forms not in ((["rate", "bandwidth"], []), ([], ["spectral_efficiency"])):
            return [((), ", ".join(forms[0] + forms[1]) or MISSING,
                     "expected spectral_efficiency, or rate and bandwidth: what the channel is to carry")]
        if self.rate is not None and self.bandwidth is not None and self.rate / self.bandwidth > 1000:
            return [(("rate",), "", "expected at most 1000 bit/s for each Hz of bandwidth")]
        return []


def _key(name: str) -> str:
    """A field as the file calls it."""
    return OutageSection.model_fields[name].alias or name


def outage_value(value: object) -> object:
    """`none` as a model that loses nothing; what is neither that nor a mapping is refused."""
    if not isinstance(value, dict) and value != "none":
        raise ValueError("expected none or a model such as {model: bernoulli, p: 0.1, per: round}")
    # p = 0 is what "none" means; `outage_spec` gives the rule its word back
    return {"model": "bernoulli", "p": 0} if value == "none" else value


WrittenOutage = Annotated[OutageSection, BeforeValidator(outage_value, json_schema_input_type=OutageSection | str)]


def outage_spec(o: OutageSection | None, base: Path) -> AnyOutage | Literal["none"] | None:
    """The outage as the network takes it; a trace's file is looked for in `base`."""
    if o is None:
        return None
    per, span, start = cast(Any, o.per or "message"), cast(Any, o.span or "at_start"), cast(Any, o.start)
    if o.up is not None and o.down is not None:
        return OnOffSpec(o.up, o.down, start or "stationary", span)
    if o.coherence is not None and o.snr is not None:
        efficiency = o.spectral_efficiency or (o.rate or 0) / (o.bandwidth or 1)
        return FadingSpec(o.coherence, o.snr, efficiency, span)
    if o.file is not None:
        return LossTraceSpec(cast(Path, absolute(o.file, base)), bool(o.loop), span)
    assert o.p is not None              # `OutageSection.wrong` has seen to it that each model has what it needs
    if o.kind == "bernoulli":
        return OutageSpec(p=o.p, per=per, slot_ns=o.slot, span=span) if o.p else "none"
    return GilbertSpec(o.p, 1 - o.p if o.r is None else o.r, 1.0 if o.loss_bad is None else o.loss_bad,
                       o.loss_good or 0.0, per, o.slot, start or "good", span)


def outage_document(spec: AnyOutage | Literal["none"] | None) -> object:
    """As a file says it: "none", or the model with what differs from its defaults."""
    if spec is None or isinstance(spec, str):
        return spec
    span = None if spec.span == "at_start" else spec.span
    if isinstance(spec, OutageSpec):
        return without_none(model=spec.model, p=spec.p, per=spec.per, slot=duration_text(spec.slot_ns), span=span)
    if isinstance(spec, GilbertSpec):
        return without_none(model="gilbert_elliott", p=spec.p, r=spec.r,
                            **{"1-h": spec.loss_bad, "1-k": spec.loss_good}, per=spec.per,
                            slot=duration_text(spec.slot_ns), start=spec.start, span=span)
    if isinstance(spec, OnOffSpec):
        return without_none(model="on_off", up=duration_text(spec.up_ns), down=duration_text(spec.down_ns),
                            start=spec.start, span=span)
    if isinstance(spec, FadingSpec):
        return without_none(model="fading", coherence=duration_text(spec.coherence_ns), snr=spec.snr,
                            spectral_efficiency=spec.efficiency, span=span)
    return without_none(model="trace", file=str(spec.file), loop=spec.loop or None, span=span)
