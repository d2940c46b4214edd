"""How much memory is free, and whether a batch fits."""

from collections.abc import Sequence
from pathlib import Path

import torch

from tokenlight.explain.footprint import Shape, need_of_plan
from tokenlight.explain.passes import PassPlan
from tokenlight.foundation.sizes import describe_bytes
from tokenlight.record.recording import RecordOptions

ALWAYS_FITS = 128 * 2**20  # bytes; not worth a look at what is free
MARGIN = 2  # estimates are above the true need by less than this, wherever it was measured: what fits is not refused


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a device, caches included; None where nobody says."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type != "cpu":
        return None
    return min((found for found in (free_in_system(), free_in_group()) if found is not None), default=None)


def free_in_system(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        import psutil
    except ImportError:
        return None
    return psutil.virtual_memory().available


def free_in_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container may still take, where it has a limit (version 2 of Linux's control groups)."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    return None if limit == "max" else int(limit) - used + int(statistics.get("inactive_file", 0))


def refuse_too_large(
    shape: Shape, plan: PassPlan, size: Sequence[int], record_options: RecordOptions, device: torch.device
) -> None:
    """Say so before a batch of `size` (texts, tokens) takes more memory than there is."""
    rows, tokens = size
    need = need_of_plan(shape, plan, rows, tokens, record_options)
    if need <= ALWAYS_FITS:
        return
    free = free_memory(device)
    if free is None or need <= MARGIN * free:
        return
    ways = ["shorter texts", "weights in half precision"]
    if not record_options.by_block:
        saved = need_of_plan(shape, plan, rows, tokens, RecordOptions(True, record_options.last_logits))
        if saved < need:
            ways.insert(0, f"low_memory=True (about {describe_bytes(saved)})")
    fitting = largest_batch(shape, plan, tokens, record_options, free)
    if 0 < fitting < rows:
        ways.insert(0, f"batch_size={fitting}")
    raise MemoryError(
        f"{' + '.join(method_config.method.name for method_config in plan.method_configs)} on {rows} "
        f"texts of {tokens} tokens needs about "
        f"{describe_bytes(need)} in addition to the weights; {describe_bytes(free)} are free on {device}. "
        f"Ways out: {', '.join(ways)}"
    )


def largest_batch(shape: Shape, plan: PassPlan, tokens: int, record_options: RecordOptions, free: int) -> int:
    """How many texts of `tokens` tokens fit at once; 0 if not even one."""
    low, high = 0, 1
    while need_of_plan(shape, plan, high, tokens, record_options) <= free and high < 2**20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fits = need_of_plan(shape, plan, middle, tokens, record_options) <= free
        low, high = (middle, high) if fits else (low, middle)
    return low
