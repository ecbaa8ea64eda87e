"""Where a run trains. A resume on another host would not be exact, so it is refused unless asked for."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mma import children
from mma.config import Optim
from mma.errors import UserError
from mma.features.backbone import Precision
from mma.nets.network import forward_flop
from mma.run import Run
from mma.training.checkpoint import Identity
from mma.training.step import has_bfloat16, resolve
from mma.views.features import torch_threads

# FLOP of a batch; below it two threads gain a fifth at most, and lose half beside a busy program. bfloat16 takes half as
# long for the same FLOP, and oneDNN's gradients of kernels wait for the other thread in a loop that never sleeps.
SMALL_FORWARD: dict[Precision, float] = {"float32": 5e8, "bfloat16": 1e9}
ARITHMETIC = 5  # of mma itself; raised when a run begun before would go on with other numbers (CHANGELOG, Numbers)
# What the numbers depend on.
EXACT = (
    *("arithmetic", "torch", "numpy", "scikit-learn"),
    *("device", "gpu", "threads", "processes", "compile", "cpu", "precision", "config", "data", "views"),
)


@dataclass(frozen=True)
class Host:
    """What a run trains with. None means: what the run used before, else the default.

    Parameters
    ----------
    device : str, optional
        cpu, cuda, cuda:1, mps, or auto, the default: cuda, then mps, then cpu.
    threads : int, optional
        Of each process. Default: what suits the network.
    compile : bool, optional
        Use torch.compile. Default: no.

    Examples
    --------
    >>> mma.Host(device="cpu", threads=1).check()
    device(type='cpu')
    """

    device: str | None = None
    threads: int | None = None
    compile: bool | None = None

    def check(self) -> torch.device:
        """Return the device, if it is there."""
        return torch.device(choose_device(self.device)[0])

    def prepare(self, local: int | None = None) -> torch.device:
        """Set device and threads for this process; `local` is its number when several on this machine train one run."""
        device = self.check()
        torch.set_num_threads(self.threads or cores())
        keep_memory()
        if device.type == "mps" and local is not None:
            raise UserError(
                "device mps: several processes cannot share Apple's GPU. Train with one, or with --device cpu."
            )
        if device.type == "cuda" and local is not None:  # one of several processes on this machine
            count = torch.cuda.device_count()
            if device.index is not None:
                raise UserError(f"device {device}: each process takes a GPU of its own. Use the device cuda.")
            if local >= count:
                many = f"this is process {local + 1} here, but torch sees {count} GPUs"
                raise UserError(f"{many}. Use --nproc-per-node {count}.")
            torch.cuda.set_device(local)
            device = torch.device("cuda", local)
        if device.type == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS is not repeatable
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        return device


def choose_device(asked: str | None, gpus: int | None = None, apple: bool | None = None) -> tuple[str, str]:
    """Return the name of the device to compute on, and why it is that one. None and auto take cuda, then mps, then cpu.

    `gpus` that CUDA has and whether Apple's GPU is there are asked of torch, unless they are given.
    """
    gpus = (torch.cuda.device_count() if torch.cuda.is_available() else 0) if gpus is None else gpus
    apple = torch.backends.mps.is_available() if apple is None else apple
    if asked in (None, "auto"):
        if gpus:
            return "cuda", "torch sees a CUDA GPU"
        return ("mps", "torch sees Apple's GPU, and no CUDA") if apple else ("cpu", "torch sees no GPU")
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", str(asked)):
        raise UserError(f"device {asked}: there is no such device. Use auto, cpu, cuda, cuda:N or mps.")
    kind, _, number = str(asked).partition(":")
    if kind == "cuda" and not gpus:
        raise UserError(f"device {asked}: torch sees no GPU here. Use the device cpu.")
    if number and int(number) >= gpus:
        raise UserError(f"device {asked}: torch sees {gpus} GPUs here, and counts them from 0. Use the device cuda.")
    if kind == "mps" and not apple:
        raise UserError("device mps: torch sees no GPU of Apple's here. Use the device cpu.")
    return str(asked), "it was asked for"


def cores() -> int:
    """Return the cores there are for this process: torchrun says how many processes share this machine."""
    return max(children.cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)


def suitable_threads(net: nn.Module, example: Tensor, batch: int, precision: Precision = "float32") -> int:
    """Return the threads for a new run on a CPU: one where a forward is over before a second thread has woken up.

    It follows from the network, its images and the precision, so that every machine with as many cores chooses alike.
    """
    return 1 if batch * forward_flop(net, example) < SMALL_FORWARD[precision] else cores()


def training_threads(net: nn.Module, example: Tensor, optim: Optim) -> AbstractContextManager[None]:
    """Train with as many threads as a run would, and put the caller's number back afterwards."""
    return torch_threads(suitable_threads(net, example, optim.batch, resolve(optim, example.device)))


def fill_in(run: Run, asked: Host) -> Host:
    """Fill in what was not asked for from the run's own host.json, so that going on is exact by default."""
    then = run.host() or {}
    return Host(
        choose_device(then.get("device", asked.device) if asked.device in (None, "auto") else asked.device)[0],
        asked.threads or then.get("threads"),
        asked.compile if asked.compile is not None else then.get("compile", False),
    )


def describe(host: Host, identity: Identity, processes: int = 1, optim: Optim = Optim()) -> dict[str, Any]:
    """Return what the numbers of a run depend on beside its config, and the digests of config and data."""
    device = host.check()
    precision, gpu = resolve(optim, device), None
    if device.type == "cuda":
        gpu = torch.cuda.get_device_name(device)
    elif device.type == "mps":
        gpu = f"{platform.processor()}, macOS {platform.mac_ver()[0]}"
    return {
        "format": 2,
        "mma": version("mma-learn"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": version("scikit-learn"),
        "arithmetic": ARITHMETIC,
        "device": choose_device(host.device)[0],
        "gpu": gpu,
        "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        # Emulated bfloat16 rounds elsewhere than a processor's own, so it is another precision.
        "precision": precision if precision == "float32" or has_bfloat16(device) else f"{precision}, emulated",
        "threads": torch.get_num_threads(),
        "processes": processes,
        "compile": host.compile,
        "config": identity.config,
        "data": identity.data,
        "views": identity.views,
    }


def check(run: Run, now: dict[str, Any], *, inexact: bool) -> None:
    """Write host.json the first time; afterwards refuse to go on where the numbers could differ."""
    then, changed = run.host(), [*EXACT]
    if now["device"] == "mps" and run.checkpoint_steps() and not inexact:
        raise UserError(
            f"{run.folder} cannot be continued exactly: on Apple's GPU (mps) torch does not promise the same sums twice. "
            f"Accept slightly other numbers with  mma train {run.folder} --inexact"
        )
    if then is not None:
        Identity(now["config"], now["data"], now["views"]).refuse_another(
            run.folder, then.get("config"), then.get("data"), then.get("views")
        )
        changed = [key for key in EXACT if then.get(key) != now[key]]
    if then is not None and changed and not inexact:  # say what differs from where the run began, and how to go on
        differences = ", ".join(f"{key} was {then.get(key)!r} and is {now[key]!r}" for key in changed)
        many = [host.get("processes", 1) for host in (then, now)]
        before, again = (
            f"{'mma' if n == 1 else f'torchrun --nproc-per-node {n} -m mma'} train {run.folder}" for n in many
        )
        there = f", with  {before} ," if {"processes", "device", "threads", "compile"}.intersection(changed) else ","
        options = [f"--{key} {now[key]}" for key in ("device", "threads") if key in changed]
        options += ["--compile"] if "compile" in changed and now["compile"] else []  # else it goes on with what it had
        # No command says not to compile: only a call from Python does.
        call = "compile" in changed and then.get("compile")
        way = "inexact=True in the same call" if call else f" {' '.join([again, *options])} --inexact"
        raise UserError(
            f"{run.folder} cannot be continued exactly here: {differences}. Continue it where it began{there} or accept "
            f"slightly other numbers with {way}"
        )
    if changed:
        run.write_host(now)


# Settings of glibc (<malloc.h>), in bytes: blocks that are mapped by themselves (it accepts no more), free memory that stays
# with the process, and what the heap grows by.
MALLOC = {"M_MMAP_THRESHOLD": (-3, 32 << 20), "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1), "M_TOP_PAD": (-2, 64 << 20)}


def keep_memory() -> bool:
    """Let the C library keep freed blocks. False where it is not glibc: nothing but speed depends on it.

    A step allocates and frees the same activations again and again. By default each of them may be unmapped when it is
    freed, and the next step pays for a page fault per 4 KB: up to a fifth of its time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and all(mallopt(*setting) == 1 for setting in MALLOC.values())
