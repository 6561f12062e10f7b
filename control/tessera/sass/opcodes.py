# SPDX-License-Identifier: Apache-2.0
"""Every machine instruction that the analysis has been taught, as one table.

A row says what the instruction writes and how its result comes from its operands. What has
no row makes its kernel unknown: neither what it writes nor what it touches is known.

`value`, how the result relates to the sources:
  none    nothing is written (predicates apart)
  number  no address survives: floating point, comparisons, counts, identifiers
  move    the first source        sum     the sum of all sources
  bits    bits of all sources     product a*b + c         lea     (a << n) + b
  shift   a source, scaled        select  one of two, by a predicate
  extreme one of two, by their values
  load    from memory             bank    from a constant bank
`memory`, what it does to memory ("" nothing): r, w, rw, then the space: g global or generic,
s shared, l local. `words`: how many registers it surely writes, 0: as its modifiers say;
`most`: how many it may write, "" as many as `words`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tessera.analysis import Property
from tessera.sass.syntax import Instruction

NOTHING = Property(0)


@dataclass(frozen=True, slots=True)
class Row:
    value: str = "none"
    memory: str = ""
    words: int = 0
    most: str = ""  # "mma", "wgmma", "tensor"
    properties: Property = NOTHING
    flow: str = ""  # branch, call, return, end, barrier, unknown


def _rows(names: str, row: Row) -> dict[str, Row]:
    return dict.fromkeys(names.split(), row)


_NUMBERS = """
    FADD FADD32I FFMA FFMA32I FMUL FMUL32I FMNMX FMNMX3 FSET FRND FSWZADD MUFU FADD2 FFMA2 FMUL2
    HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2 HMUL2_32I HMNMX2 HSET2 F2FP I2FP I2F F2F F2I F2IP
    I2I I2IP FLO POPC BREV BMSK SGXT IABS IDP IDP4A VABSDIFF VABSDIFF4 VOTE VOTEU MATCH LEPC
    S2R S2UR CS2R CS2UR P2R UP2UR B2R UFLO UPOPC UBREV UBMSK USGXT UI2F UF2I UI2FP UF2FP UFADD
    UFFMA UFMUL UFMNMX UFSET UIABS DADD DFMA DMUL DMNMX REDUX CREDUX UREDUX
    QSPC ELECT VHMNMX UHADD2 UHFMA2 UHMUL2
"""
_PREDICATES = """
    FSETP HSETP2 ISETP DSETP PLOP3 PSETP FCHK UISETP UPLOP3 UPSETP UFSETP
"""
_NOTHING = """
    NOP BAR BSSY BREAK BMOV DEPBAR LDGDEPBAR MEMBAR ERRBAR CGAERRBAR NANOSLEEP YIELD WARPSYNC
    WARPGROUP WARPGROUPSET FENCE ACQBULK PREEXIT UCGABAR_ARV UCGABAR_WAIT USETMAXREG USETSHMSZ
    UTMACMDFLUSH UTMAPF UBLKPF ENDCOLLECTIVE CCTL CCTLL CCTLT UTMACCTL UTCBAR ARRIVES R2P R2B
    PMTRIG STTM UTCCP UTCSHIFT UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA

"""

OPCODES: dict[str, Row] = (
    _rows(_NUMBERS, Row("number"))
    | _rows(_PREDICATES, Row())
    | _rows(_NOTHING, Row())
    | _rows("MOV MOV32I UMOV UMOV32I R2UR SHFL USHFL", Row("move"))
    | _rows("IADD IADD3 IADD32I VIADD UIADD3 UIADD UVIADD IADD2", Row("sum"))
    | _rows("LOP LOP3 LOP32I PLOP ULOP ULOP3 ULOP32I PRMT UPRMT", Row("bits"))
    | _rows("IMAD UIMAD IMUL IMAD32I", Row("product"))
    | _rows("LEA ULEA", Row("lea"))
    | _rows("SHF SHL SHR USHF USHL USHR", Row("shift"))
    | _rows("SEL USEL FSEL UFSEL", Row("select"))
    | _rows("IMNMX VIMNMX VIMNMX3 UIMNMX UVIMNMX VIADDMNMX UVIADDMNMX", Row("extreme"))
    | _rows("HMMA IMMA DMMA BMMA QMMA OMMA MOVM", Row("number", most="mma"))
    | _rows("HGMMA IGMMA BGMMA QGMMA", Row("number", most="wgmma"))
    | _rows("LDTM", Row("number", most="tensor"))
    | _rows("LDG LD", Row("load", "rg"))
    | _rows("STG ST", Row("none", "wg"))
    | _rows("ATOMG ATOM", Row("load", "rwg"))
    | _rows("RED REDG", Row("none", "rwg"))
    | _rows("LDS LDSM ATOMS", Row("load", "rs"))
    | _rows("STS STSM", Row("none", "ws"))
    | _rows("LDL", Row("load", "rl"))
    | _rows("STL", Row("none", "wl"))
    | _rows("LDC ULDC LDCU", Row("bank"))
    | _rows("LDGSTS", Row("none", "rg"))
    | _rows("STAS REDAS", Row("none", properties=Property.CLUSTERS))  # a neighbour's shared memory
    | _rows("SYNCS", Row("number", "sync", most="two"))
    | _rows("UTCATOMSWS UGETNEXTWORKID", Row("number"))
    | _rows("UBLKCP UBLKRED", Row("none", "bulk"))
    | _rows("UTMALDG", Row("none", "tensor r"))
    | _rows("UTMASTG", Row("none", "tensor w"))
    | _rows("UTMAREDG", Row("none", "tensor rw"))
    | _rows(
        "TEX TLD TLD4 TMML TXD TXQ SULD SUST SUATOM SURED SUQUERY TTUCCTL FOOTPRINT",
        Row("number", most="two", properties=Property.TEXTURES | Property.UNKNOWN),
    )
    | _rows("BRA JMP", Row(flow="branch"))
    | _rows("CALL", Row(flow="call"))
    | _rows("RET", Row(flow="return"))
    | _rows("EXIT KILL", Row(flow="end"))
    | _rows("BPT", Row(flow="trap"))
    | _rows("BSYNC", Row(flow="barrier"))
)

_WIDTHS = {"64": 2, "128": 4, "256": 8, "F64": 2, "U64": 2, "S64": 2, "b64": 2}
_PAIRS = frozenset("DADD DFMA DMUL DMNMX FADD2 FFMA2 FMUL2".split())
_SOURCE_TYPED = frozenset("F2F F2I F2IP I2F I2I FRND UF2I UI2F".split())


def words_of(instruction: Instruction) -> tuple[int, int]:
    """How many registers from its first one on an instruction surely and at most writes."""
    row = OPCODES[instruction.base]
    if row.most:
        return _uncertain(instruction, row.most)
    if instruction.base in _PAIRS or instruction.has("WIDE"):
        return 2, 2
    if instruction.base in ("CS2R", "CS2UR"):
        return (1, 1) if instruction.has("32") else (2, 2)
    if instruction.base == "LDSM":
        count = int(instruction.modifiers[-1]) if instruction.modifiers[-1].isdigit() else 1
        return count, count
    if instruction.base in _SOURCE_TYPED:
        return _conversion(instruction)
    if instruction.base in ("SHF", "USHF", "LEA", "ULEA"):
        return 1, 1  # their .U64 is what they shift, not what they give
    count = max((_WIDTHS[m] for m in instruction.modifiers if m in _WIDTHS), default=1)
    return count, count


def _conversion(instruction: Instruction) -> tuple[int, int]:
    """F2I.S64.F64 writes two words, I2F.S64 may mean either type."""
    wide = [m for m in instruction.modifiers if m in _WIDTHS]
    if not wide:
        return 1, 1
    return (2, 2) if instruction.modifiers[0] in _WIDTHS and len(wide) > 1 else (1, 2)


def _uncertain(instruction: Instruction, kind: str) -> tuple[int, int]:
    if kind == "mma":
        return 1, 8
    if kind == "two":
        return 0, 4
    text = ".".join(instruction.modifiers)
    if kind == "wgmma":
        match = re.search(r"x(\d+)x", text)
        return 1, int(match[1]) if match else 256
    match = re.search(r"x(\d+)", text)
    return 1, min(255, 4 * int(match[1])) if match else 255


SYNC_SHARED = frozenset(("ATOMS", "LDGSTS", "STAS", "REDAS", "UBLKCP", "UBLKRED", "UTMALDG", "STSM",
                         "UGETNEXTWORKID"))  # fmt: skip
"""What brings data into shared memory that no STS wrote."""

DEVICE_DEPENDENT = re.compile(
    r"SR_(CLOCK|GLOBALTIMER|VIRTUALSMID|SMID|NSMID|VIRTID|WARPID|NWARPID|PM|GRIDID|SMEMSZ|VIRTCFG)"
)
CLUSTER_REGISTERS = re.compile(r"SR_(Cga|CGA|Cluster)")
WINDOWS = re.compile(r"SR_(SWINHI|LWINHI|SWINLO|LWINLO)")
# Words of constant bank 0 below the parameters: where windows begin, by the bank's layout.
WINDOW_WORDS = {
    "old": frozenset((0x18, 0x1C, 0x20, 0x24)),  # parameters at 0x160 or 0x210
    "new": frozenset((0x34C, 0x350, 0x354)),
}
_BLOCK_ADDRESS = {  # by where the parameters begin: word -> how far before them it points
    0x210: {0x198: 0, 0xC0: 0x210},  # sm_90; the second is the bank's own address, in nvjet
    0x380: {0x348: 0},
}


def before_parameters(offset: int, parameter_base: int) -> int | None:
    """For the low word of an address of the parameter block, in bank 0, out of which tensor maps
    are read: how many bytes before the block it points. None: it is another word."""
    return _BLOCK_ADDRESS.get(parameter_base, {}).get(offset)
