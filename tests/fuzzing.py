"""Mutated and hostile files for `pindown.load`: ``python tests/fuzzing.py 100000 [seed]`` prints what happened.

No file may run anything, write anything, or import anything; none may end in another error than `InputError`; and what
is loaded must be exactly what the file says. An audit hook of the interpreter watches, so this is a process of its own.
"""

import copy
import hashlib
import json
import math
import random
import struct
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import nn

import pindown
from pindown import Classify, Contrast, Dictionary, Forget, Sparse, networks
from pindown._files import pack_tensors, unpack_tensors
from pindown._names import printable
from pindown.errors import InputError
from pindown.networks.gates import TopK
from pindown.saving.table import GROUP, TABLE, look_up
from pindown.saving.values import Writer

EVENTS = (
    *("ctypes", "exec", "import", "marshal", "os.", "pickle", "pty", "shutil", "socket", "subprocess"),
    *("syslog", "urllib", "webbrowser"),
)
HARMLESS = {"os.listdir", "os.scandir"}
NAMES = (
    *("os:system", "posix:system", "builtins:eval", "subprocess:Popen", "torch:load", "torch.hub:load", "pickle:loads"),
    *("pindown.__main__:app", "pindown.saving:load", "pindown.saving.values:Reader", "pindown._files:os.replace"),
    *("antigravity:fly", "this:s", "__main__:main", "nn.LSTM", "nn.Module", "nn.functional.silu", "Contrast", "adam"),
    *("Reader", "load", "system", "", ":", "a:b:c", "pindown", "..:x", "\x1b[31m", "x" * 10_000),
)
ATTRIBUTES = (
    *("forward", "__class__", "__call__", "__dict__", "_modules", "_forward_hooks", "made_by", "training", "transform"),
    *("__reduce__", "_call_impl", "register_buffer", "fit", "encoder_", "n_components_", "_sklearn_output_config", "0"),
)
VALUES = (
    *(None, True, 0, -1, 10**30, 2**63, 1e308, "", "nan", [], {}, [[]], {"float": "nan"}, {"float": "1e999"}),
    *({"name": 0}, {"module": 0}, {"module": -1}, {"tuple": []}, {"dtype": "object"}, {"pickle": "gASVBQ=="}),
    *({"array": {"at": "x", "dtype": "|O", "shape": [1]}}, {"unsaved": ["a", "b"]}, {"scalar": 3}, {"set": [[]]}),
    *({"texts": {"dtype": "<U1000000000", "shape": [1], "values": ["a"]}}, {"generator": None}, {"value": [0, {}]}),
    *({"partial": [{"name": 0}, {"tuple": ["touch /tmp/fuzzed"]}, {"dict": []}]}, {"dict": [[{"dict": []}, 1]]}),
    *({"estimator": {"class": 0, "parameters": {}, "learned": {}}}, {"objects": {"shape": [-1], "values": [1]}}),
)


def base_files():
    """Return files to start from: a few small fits, and those of the first format."""
    x = np.random.default_rng(0).normal(size=(60, 4))
    y, quick = np.arange(60) % 3, {"max_iter": 3, "random_state": 0, "verbose": False, "device": "cpu"}
    small = {"encoder": networks.linear, "preprocess": networks.preprocessing.whiten, **quick}
    fits = (
        Contrast(2, space=networks.spaces.Reals(), **small).fit(x, x),
        Classify(2, encoder=nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), **quick).fit(x, y.astype(str)),
        Forget(2, **quick).fit(x, y),
        Dictionary(2, n_restarts=1, **quick).fit(x),
        Sparse(5, gate=TopK(2), **quick).fit(x),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        for estimator in fits:
            estimator.save(path)
            yield path.read_bytes()
    with zipfile.ZipFile(Path(__file__).parent / "files" / "format1.zip") as archive:
        yield from (archive.read(name) for name in ("contrast.pindown", "mean projection.pindown", "regress.pindown"))


def opened(data):
    """Return the tensors and the entry of a file, whatever its format."""
    if b'\\"format\\":1,' in data[:60]:
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        return unpack(data), json.loads(header["__metadata__"]["pindown"])
    return unpack_tensors(data)


def sealed(tensors, entry):
    """Return the file with a checksum that is right, as an attacker would."""
    if entry["format"] != 1:
        return pack_tensors(tensors, entry)
    digest = hashlib.sha256(json.dumps(entry["content"], separators=(",", ":")).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    entry = {**entry, "sha256": digest.hexdigest()}
    order = {name: entry[name] for name in ("format", "versions", "sha256", "content")}
    return pack(tensors, {"pindown": json.dumps(order, separators=(",", ":"))})


def hostile(files):
    """Yield files written by hand, each after one that is real."""

    def changed(data, change):
        tensors, entry = opened(data)
        tensors, entry = dict(tensors), copy.deepcopy(entry)
        change(tensors, entry["content"])
        return sealed(tensors, entry)

    def attributes(**extra):
        def change(tensors, content):
            for part in content["modules"]:
                part.setdefault("attributes", {}).update(extra)

        return change

    def learned(**extra):
        return lambda tensors, content: content["estimator"]["estimator"]["learned"].update(extra)

    def named(name, use):
        def change(tensors, content):
            content["names"].append(name)
            number = len(content["names"]) - 1
            call = {"partial": [{"name": number}, {"tuple": ["touch /tmp/fuzzed"]}, {"dict": []}]}
            made = {"made": [{"name": number}, "touch /tmp/fuzzed"], "tensors": {}, "training": []}
            match use:
                case "class":
                    content["estimator"]["estimator"]["class"] = number
                case "value":
                    content["estimator"] = {"value": [number, {}]}
                case "module":
                    content["modules"].insert(0, {"class": number, "attributes": {}, "training": False})
                case "made":
                    content["modules"].append(made)
                case "made by a partial":
                    content["modules"].append({**made, "made": [call, 2]})
                case "forward":
                    content["modules"].append({"layer": "Identity", "arguments": {}, "training": False})
                    content["modules"][-1]["attributes"] = {"forward": call}
                case _:
                    content["estimator"]["estimator"]["learned"][use] = call

        return change

    uses = ("class", "value", "module", "made", "made by a partial", "forward", "transform", "a_", "__class__")
    for data in files:
        yield from (changed(data, named(name, use)) for name in NAMES for use in uses)
        yield from (changed(data, attributes(**{name: {"name": 0}})) for name in ATTRIBUTES)
        yield from (changed(data, learned(**{name: {"module": 0}})) for name in ATTRIBUTES)
        yield changed(data, lambda tensors, content: tensors.clear())
        yield changed(data, lambda tensors, content: tensors.update(more=torch.zeros(3)))
        yield changed(data, lambda tensors, content: content.update(modules=content["modules"] * 2))
        nested = json.loads("[" * 900 + "]" * 900)
        yield changed(data, lambda tensors, content, nested=nested: content.update(estimator=nested))


def nodes(content, path=()):
    """Yield the paths of all parts of JSON."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from nodes(value, (*path, key))


def at(content, path):
    for key in path:
        content = content[key]
    return content


def mutated(data, rng):
    """Return a file that differs, with a checksum that is right, and whether it must be refused."""
    tensors, entry = opened(data)
    tensors, content = dict(tensors), copy.deepcopy(entry["content"])
    if rng.random() < 0.25:
        name = rng.choice(sorted(tensors))
        change = rng.choice(("nan", "inf", "absurd", "missing", "shape", "dtype", "renamed", "swapped"))
        tensor = tensors[name].clone()
        if change in ("nan", "inf", "absurd") and tensor.is_floating_point() and tensor.numel():
            tensor.view(-1)[rng.randrange(tensor.numel())] = {"nan": math.nan, "inf": math.inf, "absurd": 1e30}[change]
            tensors[name] = tensor
        elif change == "shape":
            tensors[name] = tensor[None].contiguous()
        elif change == "dtype":
            tensors[name] = tensor.to(torch.float16)
        elif change == "swapped":
            other = rng.choice(sorted(tensors))
            tensors[name], tensors[other] = tensors[other], tensor
        else:
            tensors.pop(name)
            tensors |= {f"{name}x": tensor} if change == "renamed" else {}
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        paths = [path for path in nodes(content) if path]
        *above, key = rng.choice(paths)
        parent = at(content, above)
        match rng.choice(("value", "delete", "copy", "key", "name", "number", "swap")):
            case "value":
                parent[key] = copy.deepcopy(rng.choice(VALUES))
            case "delete":
                del parent[key]
            case "copy":
                parent[key] = copy.deepcopy(at(content, rng.choice(paths)))
            case "key" if isinstance(parent, dict):
                parent[rng.choice((*ATTRIBUTES, *parent))] = parent.pop(key)
            case "name" if content.get("names"):
                content["names"][rng.randrange(len(content["names"]))] = rng.choice((*NAMES, *TABLE))
            case "number" if isinstance(parent[key], int | float):
                parent[key] = rng.choice((parent[key] + 1, -parent[key], parent[key] * 1_000, float(parent[key])))
            case "swap":
                *above, other = rng.choice(paths)
                twin = at(content, above)
                parent[key], twin[other] = twin[other], parent[key]
    return sealed(tensors, {**entry, "content": content})


def damaged(data, rng):
    """Return a file as a bad disk or a broken copy leaves it."""
    content, place = bytearray(data), rng.randrange(len(data))
    match rng.choice(("bit", "bit", "bit", "byte", "cut", "insert", "remove", "zeros")):
        case "bit":
            content[place] ^= 1 << rng.randrange(8)
        case "byte":
            content[place] = (content[place] + rng.randrange(1, 256)) % 256
        case "cut":
            del content[place:]
        case "insert":
            content.insert(place, rng.randrange(256))
        case "remove":
            del content[place]
        case "zeros":
            content[place : place + 512] = bytes(len(content[place : place + 512]))
    return bytes(content)


def cases(files, n, seed):
    """Yield n files, and whether they must be refused: those written by hand first."""
    rng = random.Random(seed)
    by_hand = list(hostile(files))
    rng.shuffle(by_hand)
    by_hand = by_hand[: n // 2]
    yield from ((data, False) for data in by_hand)
    for _ in range(n - len(by_hand)):
        data = rng.choice(files)
        if rng.random() < 0.3:
            yield (worse := damaged(data, rng)), worse != data and opened(data)[1]["format"] > 1
            continue
        try:
            yield mutated(data, rng), False
        except (IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError):  # nothing a file can hold
            yield damaged(data, rng), False


def says(estimator):
    """Return what a file of an estimator says."""
    writer = Writer()
    content = {"estimator": writer.value(estimator, ""), "modules": writer.modules, "names": writer.names}
    return content, writer.tensors


def expanded(content, tensors):
    """Return content with tags for their numbers, numbers by first use for networks, and sums for tensors."""
    met = {}

    def look(node):
        if isinstance(node, list):
            return [look(each) for each in node]
        if not isinstance(node, dict):
            return f"{type(node).__name__} {node}"
        node = {key: value for key, value in node.items() if value is not False and value != {}}  # may be left out
        match node:
            case {"set": list(items)} | {"frozenset": list(items)}:
                return sorted(map(str, map(look, items)))
            case {"name": int(number), **others} if not others:
                return content["names"][number]
            case {"value": [int(number), fields]}:
                return [content["names"][number], look(fields)]
            case {"module": int(number)}:
                first = number not in met
                met.setdefault(number, len(met))
                return [met[number], look(content["modules"][number]) if first else None]
            case {"at": str(name)} if name in tensors:
                numbers = tensors[name]
                digest = hashlib.sha256(numbers.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
                return {**{k: v for k, v in node.items() if k != "at"}, "at": f"{digest} {numbers.shape}"}
        kinds = {k: content["names"][node[k]] for k in ("class", "like") if isinstance(node.get(k), int)}
        return {k: look(node[k]) for k in sorted(node)} | kinds

    return look(content["estimator"])


def same(estimator, data):
    """Return whether a loaded estimator is exactly what its file says; of the first format it is not asked."""
    there, entry = opened(data)
    return entry["format"] == 1 or covers(expanded(*says(estimator)), expanded(entry["content"], there))


def covers(now, there):
    """Return whether all that a file says is so now. It may leave out parameters that have defaults."""
    if isinstance(now, dict) and isinstance(there, dict):
        return there.keys() <= now.keys() and all(covers(now[key], there[key]) for key in there)
    if isinstance(now, list) and isinstance(there, list):
        return len(now) == len(there) and all(map(covers, now, there))
    return now == there


def main(n, seed):
    warnings.simplefilter("ignore")
    files = list(base_files())
    for tag in TABLE:
        look_up(tag)
    list(entry_points(group=GROUP))
    printable("\x1b")  # which loads a codec
    seen, counts, failures, watching = [], Counter(), [], False

    def watch(event, arguments):
        if not watching or event in HARMLESS:
            return
        if event == "import" and arguments[0].startswith("torch."):  # torch loads parts of itself when it raises
            return
        writes = event == "open" and (not isinstance(arguments[2], int) or arguments[2] & 3)
        if writes or event.startswith(EVENTS):
            seen.append(f"{event} {str(arguments)[:100]}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        for data in files:  # imports that the first load does
            path.write_bytes(data)
            with suppress(InputError):
                pindown.load(path)
        sys.addaudithook(watch)
        for number, (data, refuse) in enumerate(cases(files, n, seed)):
            path.write_bytes(data)
            seen.clear()
            try:
                watching = True
                estimator = pindown.load(path)
                watching = False
                outcome = "accepted, not what the file says" if not same(estimator, data) else "accepted as it is"
                outcome = "accepted, though damaged" if refuse else outcome
            except InputError as error:
                watching = False
                outcome = "refused" if str(error).isprintable() and len(str(error)) < 2_000 else "refused, unprintable"
            except BaseException as error:
                watching = False
                outcome = f"traceback: {type(error).__name__}: {str(error)[:200]}"
            outcome = f"did something: {seen[0]}" if seen else outcome
            counts[outcome.partition(":")[0]] += 1
            if outcome not in ("refused", "accepted as it is"):
                failures.append(f"{number}: {outcome}")
    assert not Path("/tmp/fuzzed").exists()
    print(json.dumps({"counts": counts, "failures": failures[:30]}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
