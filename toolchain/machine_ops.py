"""The opcodes of the machine: the name and the class for the low nine bits of an instruction.

From sm_75 on, an instruction has 16 bytes. Bits 0–8 are the operation, bits 9–11 the form of the operands. NVIDIA does
not publish the numbers. To find them, nvdisasm 13.5 disassembled every value for sm_75 to sm_121. The tests compare the
names with those of nvdisasm on our own kernels.

Requires: code for sm_75 or newer.
Guarantees: `names(sm)` has a name for each number that nvdisasm decodes for that architecture in general-purpose code.
A number that is not in the table has no name, and its class is `other`.
"""

import functools

#: Each row is a class, then pairs `number name`. A range after a number, as in `049:100-119`, limits the
#: architectures: a few numbers have another meaning on others.
_TABLE = """
load_global     181 LDG 17e:100-999 LDG
store_global    186 STG 17f:100-999 STG
load_shared     184 LDS 03b LDSM
store_shared    188 STS 044 STSM 1bd STAS
load_local      183 LDL
store_local     187 STL
load_constant   182 LDC 0b8 ULDC 0b9 ULDC 0bb ULDC 1ac LDCU
load_generic    180 LD
store_generic   185 ST
atomic          18a ATOM 18b ATOM 1a2 ATOM 18c ATOMS 18d ATOMS 1a3 ATOMG 1a8 ATOMG 1a9 ATOMG 18e:75-89 RED
                18e:90-999 REDG 1a6 REDG 1be REDAS 193 SUATOM 194 SUATOM 195 SUATOM 196 SUATOM 19f SURED 1a0 SURED
texture         160 TEX 161 TEX 162 TEX 163 TLD4 164 TLD4 165 TLD4 166 TLD 167 TLD 168 TLD 169 TMML 16a TMML 16b TMML
                16c TXD 16d TXD 16e TXD 16f TXQ 170 TXQ 171 TXQ 172 FOOTPRINT 173 FOOTPRINT 174 FOOTPRINT
surface         197 SULD 198 SULD 199 SULD 19a SULD 19b SUST 19c SUST 19d SUST 19e SUST 1b3 SUQUERY
async_copy      1ae LDGSTS 1af LDGDEPBAR 1b4 UTMALDG 1b5 UTMASTG 1b6 UTMAREDG 1b7 UTMACMDFLUSH 1b8 UTMAPF 1b9 UTMACCTL
                1ba UBLKCP 1bb UBLKRED 1bc UBLKPF
cache           18f CCTL 13f CCTL 140 CCTL 190 CCTLL 191 CCTLT
fence           192 MEMBAR 1ab ERRBAR 1c6 FENCE
barrier         11d BAR 11c B2R 1a7 SYNCS 1b1 SYNCS 1b2 SYNCS 1b0 ARRIVES 1c7 UCGABAR
branch          147 BRA 149 BRX 158 BRXU 14a JMP 14c JMX 159 JMXU
call            143 CALL 144 CALL 150 RET
exit            14d EXIT 15b KILL
convergence     145 BSSY 141 BSYNC 142 BREAK 146 YIELD 148 WARPSYNC 11b ENDCOLLECTIVE 155 BMOV 156 BMOV 157 BMOV
shuffle         189 SHFL
vote            006 VOTE 086 VOTEU 1a1 MATCH 1c4 REDUX 0cc CREDUX 02f ELECT
mma             03c HMMA 036:75-79 HMMA 037 IMMA 03d BMMA 03f DMMA 07a QMMA 07f OMMA 1f0 HGMMA 1f1 IGMMA 1f2 BGMMA
                1f3 QGMMA 1c5 WARPGROUP 15e WARPGROUPSET 1ea UTCHMMA
tensor_memory   1e3 UTCATOMSWS 1e6 UTCSHIFT 1e7 UTCCP 1e9 UTCBAR 1ed STTM 1ee LDTM
fp16            030 HADD2 031 HFMA2 032 HMUL2 033 HSET2 034 HSETP2 035:75-119 HFMA2 040 HMNMX2 047 VHMNMX
fp32            020 FMUL 021 FADD 022 FSWZADD 023 FFMA 008 FSEL 009 FMNMX 00a FSET 00b FSETP 102 FCHK 076 FMNMX3
                049:100-119 FFMA2 04a:100-119 FMUL2 04b:100-119 FADD2 07b QFMA4 07c QMUL4 07d QADD4
                050 UFMNMX 051 UFSEL 052 UFSET 053 UFSETP 054 UFADD 055 UFFMA 056 UFMUL
fp64            028 DMUL 029 DADD 02a DSETP 02b DFMA
integer         007 SEL 00c ISETP 010 IADD3 011 LEA 012 LOP3 013 IABS 014 VABSDIFF 015 VABSDIFF4 016 PRMT 017 IMNMX
                019 SHF 01a SGXT 01b BMSK 024 IMAD 026 IDP 027 IMAD 02c CLMAD 035:120-999 IADD
                036:80-999 VIADD 00f VIMNMX3 046 VIADDMNMX 048 VIMNMX 049:120-999 UVIADD 04a:120-999 UVIMNMX
                100 FLO 101 BREV 109 POPC 04d UIABS 085 UIMNMX 087 USEL 08c UISETP 090 UIADD3 091 ULEA 092 ULOP3
                096 UPRMT 097 UIADD3 099 USHF 09a USGXT 09b UBMSK 0a4 UIMAD 0a6 UIMAD 0bc UCLEA 0bd UFLO
                0be UBREV 0bf UPOPC
wide            025 IMAD 0a5 UIMAD
conversion      038 I2I 039 I2IP 03e F2FP 043 F2IP 045 I2FP 104 F2F 105 F2I 106 I2F 107 FRND 110 F2F 111 F2I 112 I2F
                113 FRND 0ba UF2FP 04e UI2I 04f UI2IP 059 UF2IP 05a UI2F 05b UF2F 05c UF2I 05d UFRND 05e UI2FP
special         108 MUFU
predicate       003 P2R 004 R2P 01c PLOP3 01d PLOP3 01e PLOP3 01f PLOP3 083 UP2UR 084 UR2UP 09c UPLOP3 09d UPLOP3
                09e UPLOP3 09f UPLOP3
move            002 MOV 082 UMOV 005 CS2R 0cb CS2UR 119 S2R 1c3 S2UR 0ca R2UR 1c2 R2UR 03a MOVM 152 RPCMOV 153 RPCMOV
                154 RPCMOV 14e LEPC 1ce ULEPC
nop             118 NOP
other           001 PMTRIG 00d CSMTEST 02d PREEXIT 02e ACQBULK 04c UVIRTCOUNT 077 ACQSHMINIT 11a DEPBAR 11f SETCTAID
                120 AL2P 121 ALD 122 AST 123 ISBERD 124 OUT 125 PIXLD 126 IPA 127 ISBEWR 15c BPT 15d NANOSLEEP
                177 USTGR 178 UREDGR 1aa QSPC 1ad LDTRAM 1c0 GETLMEMBASE 1c1 SETLMEMBASE 1c8 USETMAXREG 1c9 USETSHMSZ
                1ca UGETNEXTWORKID 1cb UMEMSETS
"""


@functools.cache
def _rows() -> tuple[tuple[str, int, int, int, str], ...]:
    """(class, number, first architecture, last architecture, name) of each entry."""
    rows: list[tuple[str, int, int, int, str]] = []
    kind = ""
    for line in _TABLE.strip().splitlines():
        words = line.split()
        if not line[0].isspace():
            kind = words.pop(0)
        for spot, name in zip(words[::2], words[1::2], strict=True):
            number, _, span = spot.partition(":")
            first, _, last = (span or "0-999").partition("-")
            rows.append((kind, int(number, 16), int(first), int(last), name))
    return tuple(rows)


#: Every class, in the order of the table.
KINDS: tuple[str, ...] = tuple(dict.fromkeys(line.split()[0] for line in _TABLE.splitlines() if line[:1].isalpha()))


@functools.cache
def names(sm: int) -> dict[int, str]:
    """The name for each number, for code of architecture `sm`.

    >>> names(90)[0x181]
    'LDG'
    """
    return {number: name for _, number, first, last, name in _rows() if first <= sm <= last}


@functools.cache
def kinds(sm: int) -> dict[int, str]:
    """The class for each number, for code of architecture `sm`.

    >>> kinds(90)[0x049] if 0x049 in kinds(90) else "none", kinds(100)[0x049], kinds(120)[0x049]
    ('none', 'fp32', 'integer')
    """
    return {number: kind for kind, number, first, last, _ in _rows() if first <= sm <= last}
