"""Defines units of measurement in English and Chinese, as multiples of common base units."""

import re
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import NamedTuple

_PREFIXES = {
    "": 0, "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "d": -1, "c": -2, "m": -3, "μ": -6, "u": -6, "n": -9, "p": -12,
    "f": -15,
}  # fmt: skip
"""Prefixes of units, except rare prefixes that would turn words into units: "at", "as"."""

_PREFIXED: Mapping[str, tuple[float, Mapping[str, int]]] = {
    "m": (1, {"m": 1}), "g": (1e-3, {"kg": 1}), "s": (1, {"s": 1}), "A": (1, {"A": 1}), "K": (1, {"K": 1}),
    "mol": (1, {"mol": 1}), "cd": (1, {"cd": 1}), "Hz": (1, {"s": -1}), "N": (1, {"kg": 1, "m": 1, "s": -2}),
    "Pa": (1, {"kg": 1, "m": -1, "s": -2}), "bar": (1e5, {"kg": 1, "m": -1, "s": -2}),
    "J": (1, {"kg": 1, "m": 2, "s": -2}), "W": (1, {"kg": 1, "m": 2, "s": -3}), "C": (1, {"A": 1, "s": 1}),
    "V": (1, {"kg": 1, "m": 2, "s": -3, "A": -1}), "F": (1, {"kg": -1, "m": -2, "s": 4, "A": 2}),
    "Ω": (1, {"kg": 1, "m": 2, "s": -3, "A": -2}), "S": (1, {"kg": -1, "m": -2, "s": 3, "A": 2}),
    "Wb": (1, {"kg": 1, "m": 2, "s": -2, "A": -1}), "T": (1, {"kg": 1, "s": -2, "A": -1}),
    "H": (1, {"kg": 1, "m": 2, "s": -2, "A": -2}), "lm": (1, {"cd": 1}), "lx": (1, {"cd": 1, "m": -2}),
    "Bq": (1, {"s": -1}), "l": (1e-3, {"m": 3}), "L": (1e-3, {"m": 3}), "t": (1e3, {"kg": 1}),
    "eV": (1.602176634e-19, {"kg": 1, "m": 2, "s": -2}), "bit": (1, {"bit": 1}), "B": (8, {"bit": 1}),
    "Wh": (3600, {"kg": 1, "m": 2, "s": -2}), "Ah": (3600, {"A": 1, "s": 1}), "VA": (1, {"kg": 1, "m": 2, "s": -3}),
    "rad": (1, {"rad": 1}), "Nm": (1, {"kg": 1, "m": 2, "s": -2}), "dB": (1, {"dB": 1}), "dBm": (1, {"dBm": 1}),
}  # fmt: skip
"""{symbol: (factor, {base: exponent})} of units that take prefixes."""

_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")

_ALONE: Mapping[str, tuple[float, Mapping[str, int]]] = {
    "min": (60, {"s": 1}), "h": (3600, {"s": 1}), "d": (86400, {"s": 1}), "%": (0.01, {}), "‰": (0.001, {}),
    "ppm": (1e-6, {}), "rpm": (1 / 60, {"s": -1}), "r": (1, {}), "°": (0.017453292519943295, {"rad": 1}),
    "in": (0.0254, {"m": 1}), '"': (0.0254, {"m": 1}), "ft": (0.3048, {"m": 1}), "yd": (0.9144, {"m": 1}),
    "lb": (0.45359237, {"kg": 1}), "lbs": (0.45359237, {"kg": 1}), "oz": (0.028349523125, {"kg": 1}),
    "psi": (6894.757293168, {"kg": 1, "m": -1, "s": -2}), "atm": (101325, {"kg": 1, "m": -1, "s": -2}),
    "hp": (745.6998715822702, {"kg": 1, "m": 2, "s": -3}), "mil": (2.54e-5, {"m": 1}), "°C": (1, {"K": 1}),
    "°F": (5 / 9, {"K": 1}), "KiB": (8 * 2**10, {"bit": 1}), "MiB": (8 * 2**20, {"bit": 1}),
    "GiB": (8 * 2**30, {"bit": 1}),
}  # fmt: skip

_ZEROS = {"°C": 273.15, "°F": 459.67 * 5 / 9}
"""Offset of temperature scales, in kelvin."""

_WORDS = {
    "metre": "m", "meter": "m", "gram": "g", "gramme": "g", "second": "s", "ampere": "A", "amp": "A", "kelvin": "K",
    "hertz": "Hz", "newton": "N", "pascal": "Pa", "joule": "J", "watt": "W", "volt": "V", "farad": "F", "ohm": "Ω",
    "henry": "H", "tesla": "T", "litre": "L", "liter": "L", "tonne": "t", "bit": "bit", "byte": "B", "bar": "bar",
}  # fmt: skip
_WORD_PREFIXES = {
    "": "", "giga": "G", "mega": "M", "kilo": "k", "deci": "d", "centi": "c", "milli": "m", "micro": "μ", "nano": "n",
    "pico": "p",
}  # fmt: skip
_WORDS_ALONE = {
    "minute": "min", "hour": "h", "day": "d", "percent": "%", "inch": "in", "inches": "in", "foot": "ft", "feet": "ft",
    "pound": "lb", "ounce": "oz", "degree": "°", "degrees celsius": "°C", "degree celsius": "°C", "deg c": "°C",
    "degrees fahrenheit": "°F", "degree fahrenheit": "°F", "deg": "°", "per cent": "%", "sec": "s", "hr": "h",
    "rev/min": "rpm", "r/min": "rpm", "revolutions per minute": "rpm", "ohms": "Ω",
}  # fmt: skip

_CHINESE = {
    "米": "m", "克": "g", "秒": "s", "安培": "A", "安": "A", "赫兹": "Hz", "赫": "Hz", "牛顿": "N", "牛": "N",
    "帕斯卡": "Pa", "帕": "Pa", "焦耳": "J", "焦": "J", "瓦特": "W", "瓦时": "Wh", "瓦": "W", "伏特": "V", "伏安": "VA",
    "伏": "V", "法拉": "F", "法": "F", "欧姆": "Ω", "欧": "Ω", "亨利": "H", "亨": "H", "升": "L", "安时": "Ah",
    "巴": "bar", "字节": "B", "比特": "bit", "牛米": "Nm", "牛·米": "Nm",
}  # fmt: skip
_CHINESE_PREFIXES = {
    "": "", "吉": "G", "兆": "M", "千": "k", "分": "d", "厘": "c", "毫": "m", "微": "μ", "纳": "n", "皮": "p",
}  # fmt: skip
_CHINESE_ALONE = {
    "公斤": "kg", "公里": "km", "公分": "cm", "吨": "t", "分钟": "min", "小时": "h", "天": "d", "摄氏度": "°C",
    "度": "°", "转/分钟": "rpm", "转/分": "rpm", "转每分钟": "rpm", "转每分": "rpm", "英寸": "in", "英尺": "ft",
    "磅": "lb", "分贝": "dB", "开尔文": "K", "马力": "hp", "度电": "kWh", "分": "min", "时": "h", "转": "r",
}  # fmt: skip

_POWER = re.compile(r"(.+?)\^?(-?[1-9])$")
_CHINESE_POWERS = {"平方": 2, "立方": 3}


class Unit(NamedTuple):
    """A unit: x of it are `x * factor + zero` of the base units."""

    factor: float
    bases: tuple[tuple[str, int], ...]  # (base unit, exponent), sorted, without exponents of 0
    zero: float = 0.0


@cache
def parse_unit(text: str) -> Unit | None:
    """Parse a unit in symbols or words, with prefixes, powers, products and quotients; None if it is not known.

    The text must be in `normal_form`. Case counts only if it makes a difference: kpa is kPa, but mw is ambiguous.
    """
    if (simple := _find_unit(text)) is not None:
        return simple
    numerator, *denominators = re.split(r"/|\bper\b|每", text)
    factor, bases = 1.0, dict[str, int]()
    for sign, part in [(1, numerator), *((-1, denominator) for denominator in denominators)]:
        for symbol in re.split("[·*⋅]", part.strip()):
            found = _find_unit_with_power(symbol)
            if found is None:
                return None
            unit, power = found
            factor *= unit.factor ** (sign * power)
            for base, exponent in unit.bases:
                bases[base] = bases.get(base, 0) + sign * power * exponent
    return Unit(factor, _sort_bases(bases))


def normal_form(text: str) -> str:
    """Normalize the spelling of a unit's signs and powers."""
    for sign, plain in {"µ": "μ", "\u2126": "Ω", "℃": "°C", "℉": "°F", "º": "°", "˚": "°", "″": '"', "×": "*"}.items():
        text = text.replace(sign, plain)
    text = re.sub("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda power: "^" + power[0].translate(_RAISED), text)
    return re.sub(r"°\s+(?=[CF]\b)", "°", text)


def _find_unit_with_power(symbol: str) -> tuple[Unit, int] | None:
    if (unit := _find_unit(symbol)) is not None:
        return unit, 1
    for word, power in _CHINESE_POWERS.items():
        if symbol.startswith(word) and (unit := _find_unit(symbol.removeprefix(word))) is not None:
            return unit, power
    if (match := _POWER.match(symbol)) and (unit := _find_unit(match[1])) is not None:
        return unit, int(match[2])
    return None


def _find_unit(name: str) -> Unit | None:
    """Look up a unit without powers, products and quotients."""
    if name in _units():
        return _units()[name]
    alike = _units_in_any_case().get(name.casefold(), frozenset())
    return next(iter(alike)) if len(alike) == 1 else None


@cache
def _units_in_any_case() -> dict[str, frozenset[Unit]]:
    folded: dict[str, frozenset[Unit]] = {}
    for name, unit in _units().items():
        folded[name.casefold()] = folded.get(name.casefold(), frozenset()) | {unit}
    return folded


@cache
def _units() -> dict[str, Unit]:
    units = {}
    for (symbol, (factor, bases)), (prefix, power) in product(_PREFIXED.items(), _PREFIXES.items()):
        units[prefix + symbol] = Unit(factor * 10.0**power, _sort_bases(bases))
    # Overwrites prefixed units of the same name: "min" is a minute, not a milli-inch.
    units |= {symbol: Unit(factor, _sort_bases(bases)) for symbol, (factor, bases) in _PREFIXED.items()}
    units |= {
        symbol: Unit(factor, _sort_bases(bases), _ZEROS.get(symbol, 0.0)) for symbol, (factor, bases) in _ALONE.items()
    }
    for words, prefixes, alone in (
        (_WORDS, _WORD_PREFIXES, _WORDS_ALONE),
        (_CHINESE, _CHINESE_PREFIXES, _CHINESE_ALONE),
    ):
        units |= {before + word: units[prefixes[before] + words[word]] for word, before in product(words, prefixes)}
        units |= {word: units[symbol] for word, symbol in alone.items()}
    units |= {word + "s": units[word] for word in _plural_words()}
    return units


def _plural_words() -> list[str]:
    return [before + word for word, before in product(_WORDS, _WORD_PREFIXES)] + ["minute", "hour", "day", "pound"]


def _sort_bases(bases: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((base, exponent) for base, exponent in bases.items() if exponent))
