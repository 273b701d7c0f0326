"""Draws per CPU-second of the exact rounded Gaussian, and the share of draws that need the slow decision."""

from __future__ import annotations

import time

import numpy as np

from dpvb.core import noise


def main(count: int = 4_000_000, repeats: int = 3) -> None:
    source = noise.SecureNoise()
    total = np.zeros(count, dtype=np.int64)
    source.gaussian(2.0**40, total[:100_000], step=0, block="warm-up", plan_digest=b"")
    print("## Exact noise\n")
    print("| std, grid steps | million draws / CPU-s | asked | share of slow decisions |\n|---|---|---|---|")
    for exponent in (20, 30, 34):
        std = 2.0**exponent
        seconds = []
        for step in range(repeats):
            begin = time.process_time()
            source.gaussian(std, total, step=step, block="speed", plan_digest=b"")
            seconds.append(time.process_time() - begin)
        slow = 0
        out = np.empty(2**14, dtype=np.int64)
        words = source.words(step=0, purpose=f"share {exponent}")(count)
        for first in range(0, count - out.size, out.size):
            slow += len(noise._round_block(std, words[first : first + out.size], out))
        print(f"| 2^{exponent} | {count / min(seconds) / 1e6:.1f} | 5 | {slow / count:.1e} |")


if __name__ == "__main__":
    main()
