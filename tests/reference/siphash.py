"""SipHash-c-d with 128 bits out, after the paper: four words, add-rotate-xor rounds, the key mixed in at first."""

from __future__ import annotations

_MASK = 2**64 - 1


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK


def _rounds(state: list[int], count: int) -> None:
    a, b, c, d = state
    for _ in range(count):
        a = (a + b) & _MASK
        b = _rotate(b, 13) ^ a
        a = _rotate(a, 32)
        c = (c + d) & _MASK
        d = _rotate(d, 16) ^ c
        a = (a + d) & _MASK
        d = _rotate(d, 21) ^ a
        c = (c + b) & _MASK
        b = _rotate(b, 17) ^ c
        c = _rotate(c, 32)
    state[:] = a, b, c, d


def _folded(state: list[int]) -> bytes:
    return (state[0] ^ state[1] ^ state[2] ^ state[3]).to_bytes(8, "little")


def siphash128(data: bytes, seed: bytes, compression_rounds: int = 2, finalization_rounds: int = 4) -> bytes:
    """The digest of `data` under the 16 bytes of `seed`."""
    low, high = int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:], "little")
    constants = [int.from_bytes(b"somepseudorandomlygeneratedbytes"[at : at + 8], "big") for at in (0, 8, 16, 24)]
    state = [word ^ key for word, key in zip(constants, (low, high, low, high), strict=True)]
    state[1] ^= 0xEE
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        state[3] ^= word
        _rounds(state, compression_rounds)
        state[0] ^= word
    state[2] ^= 0xEE
    _rounds(state, finalization_rounds)
    first = _folded(state)
    state[1] ^= 0xDD
    _rounds(state, finalization_rounds)
    return first + _folded(state)
