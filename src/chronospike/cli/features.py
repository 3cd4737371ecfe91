"""`chronospike features`: deepwalk, fastrp, svd, activity, list."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chronospike.cli.common import human_bytes, print_json, print_table, progress, resumable, say, tell
from chronospike.cli.options import AsJson, Device
from chronospike.errors import InputError

if TYPE_CHECKING:
    import torch

    from chronospike.data.feature_store import FeatureSet
    from chronospike.data.splits import Split
    from chronospike.features.make import Maker
    from chronospike.features.options import Options, Start

app = typer.Typer(help="Make node features for every step.", no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(help="A graph folder.")]
# What `--features` means by itself; `+` joins two names there.
_RESERVED = ("own", "none", "auto")


def _check_name(name: str | None) -> str | None:
    """Refuse what cannot be a name before anything heavy is imported."""
    if name in _RESERVED or "+" in (name or ""):
        raise InputError(f"a feature set cannot be named '{name}': {', '.join(_RESERVED)} and + are reserved")
    return name


Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of the feature set. Default: the method and where it was made.",
        callback=_check_name,
    ),
]
Dimension = Annotated[int, typer.Option(help="Length of a feature vector.")]
Precision = Annotated[Literal["single", "half"], typer.Option(help="'half' takes half the disk space.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads. Default: all.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing set.")]


@app.command("deepwalk")
def deepwalk(
    folder: Folder,
    name: Name = None,
    dimension: Dimension = 128,
    walks: Annotated[int, typer.Option(help="Walks from each node.")] = 10,
    length: Annotated[int, typer.Option(help="Nodes in a walk.")] = 80,
    window: Annotated[int, typer.Option(help="Largest distance between centre and context.")] = 10,
    negatives: Annotated[int, typer.Option(help="Negative samples per centre.")] = 1,
    epochs: Annotated[int, typer.Option(help="Passes, each over new walks.")] = 1,
    learning_rate: Annotated[float, typer.Option(help="Initial learning rate; decays to nearly zero.")] = 0.025,
    warm_start: Annotated[bool, typer.Option("--warm-start", help="Initialise each step from the one before.")] = False,
    unseen: Annotated[Literal["noise", "zero"], typer.Option(help="Features of nodes without an edge yet.")] = "noise",
    precision: Precision = "single",
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Random walks and skip-gram on each cumulative snapshot.

    Run the same command again to resume. With one thread, results are bit-identical each time; with several, or on a
    GPU, they differ slightly, and the name says so: deepwalk-cpu1, deepwalk-cpu8, deepwalk-gpu.
    """
    from chronospike.device import choose_device
    from chronospike.features.options import DeepWalk
    from chronospike.features.recipes import with_place

    options = DeepWalk(
        dimension=dimension,
        walks=walks,
        length=length,
        window=window,
        negatives=negatives,
        epochs=epochs,
        learning_rate=learning_rate,
        warm_start=warm_start,
        unseen=unseen,
        threads=threads,
        seed=seed,
    )
    place = str(choose_device(device))
    name = name or with_place("deepwalk", options, place)
    made = make_features(folder, name, options, device=place, precision=precision, overwrite=overwrite)
    _report(made, seed, as_json)


@app.command("fastrp")
def fastrp(
    folder: Folder,
    name: Name = None,
    dimension: Dimension = 128,
    first_hop: Annotated[int, typer.Option(help="First hop to use.")] = 9,
    last_hop: Annotated[int, typer.Option(help="Last hop to use.")] = 16,
    normalization: Annotated[float, typer.Option(help="Below zero, high-degree nodes get less weight.")] = 0.0,
    precision: Precision = "single",
    threads: Threads = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """A random projection smoothed over neighbourhoods.

    Fast; for very large graphs and first experiments. Run the same command again to resume.
    """
    from chronospike.features.options import FastRP

    if not 1 <= first_hop <= last_hop:
        raise InputError(f"--first-hop {first_hop} and --last-hop {last_hop}: hops start at 1, first before last")
    weights = tuple(float(hop >= first_hop) for hop in range(1, last_hop + 1))
    options = FastRP(dimension=dimension, weights=weights, normalization=normalization, threads=threads, seed=seed)
    made = make_features(folder, name or "fastrp", options, device="cpu", precision=precision, overwrite=overwrite)
    _report(made, seed, as_json)


@app.command("svd")
def svd(
    folder: Folder,
    name: Name = None,
    dimension: Dimension = 128,
    recency: Annotated[float, typer.Option(help="How much more recent edges weigh; 0: all alike.")] = 3.0,
    precision: Precision = "single",
    threads: Threads = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Truncated SVD of the recency-weighted adjacency.

    Each step is rotated onto the previous one. Run the same command again to resume.
    """
    from chronospike.features.options import SVD
    from chronospike.features.recipes import with_place

    options = SVD(dimension=dimension, recency=recency, threads=threads, seed=seed)
    name = name or with_place("svd", options, "cpu")
    made = make_features(folder, name, options, device="cpu", precision=precision, overwrite=overwrite)
    _report(made, seed, as_json)


@app.command("activity")
def activity(
    folder: Folder,
    name: Name = None,
    precision: Precision = "single",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Degrees, burstiness and time since the last edge, so far.

    Nothing is random, and the numbers mean the same on other graphs.
    """
    from chronospike.features.options import Activity

    made = make_features(folder, name or "activity", Activity(), device="cpu", precision=precision, overwrite=overwrite)
    _report(made, None, as_json)


@app.command("list")
def list_(folder: Folder, as_json: AsJson = False) -> None:
    """List the feature sets of a graph folder."""
    from chronospike.data.feature_store import list_features
    from chronospike.data.storage import read_meta

    read_meta(folder)
    found = list_features(folder)
    if as_json:
        print_json([_as_dict(one) for one in found])
    elif found:
        print_table([(one.name, _described(one)) for one in found])
    else:
        say("no feature sets. Make one with: chronospike features deepwalk GRAPH")


def make_features(
    folder: Path,
    name: str,
    options: Options,
    *,
    device: str,
    start: Start | None = None,
    precision: Literal["single", "half"] = "single",
    overwrite: bool = False,
) -> FeatureSet:
    """`chronospike.make_features` with a bar, and with advice where it is interrupted."""
    from chronospike.data.storage import read_meta
    from chronospike.features.make import make_features as make

    steps = read_meta(folder)["counts"]["steps"]
    advice = "Finished steps are kept. Run the same command again to resume"
    if overwrite:
        advice = "Nothing was replaced. Run the same command again to start over"
    with resumable(advice), progress(options.unit) as show:
        return make(
            folder,
            name,
            options,
            dtype="float16" if precision == "half" else "float32",
            device=device,
            overwrite=overwrite,
            start=start,
            on_progress=lambda step, done, total: show(f"step {step + 1}/{steps}", done, total),
            tell=tell,
        )


def maker(quiet: bool) -> Maker:
    """Makes features that a run needs, and says so unless `quiet`."""

    def make(folder: Path, name: str, options: Options, *, device: str, start: Start | None) -> object:
        say(f"making features {name}", unless=quiet)
        return make_features(folder, name, options, device=device, start=start)

    return make


def _report(made: FeatureSet, seed: int | None, as_json: bool) -> None:
    if as_json:
        print_json(_as_dict(made))
        return
    if seed is not None:
        say(f"  seed {seed}")
    say(f"  {_described(made)}")
    say(f"wrote {made.path} in {made.seconds:.1f} s")


def _described(one: FeatureSet) -> str:
    size = human_bytes(one.shape[0] * one.shape[1] * one.shape[2] * (2 if one.dtype == "float16" else 4))
    state = "" if one.complete else f", unfinished: {one.steps_done} of {one.shape[0]} steps"
    return f"{one.recipe.get('method', 'features')} {list(one.shape)} {one.dtype}, {size}{state}"


def _as_dict(one: FeatureSet) -> dict[str, Any]:
    shown = ("name", "shape", "dtype", "recipe", "steps_done", "complete", "seconds")
    return {name: getattr(one, name) for name in shown}


def features_of_runs(
    features: str, folder: Path, device: torch.device, quiet: bool = False
) -> tuple[str, list[Callable[[Split], None]]]:
    """The setting `features` with runs replaced by feature sets of their embeddings, which are stored first.

    With it comes what a split has to pass: see `check_labels_of`.
    """
    from chronospike.training.run_folder import CONFIG, RunFolder

    parts, checks = features.split("+"), list[Callable[["Split"], None]]()
    for number, part in enumerate(parts):
        if not (Path(part) / CONFIG).is_file():
            continue
        from chronospike.methods.registry import learner_of
        from chronospike.training.run_features import check_labels_of, store_embeddings

        run = RunFolder(Path(part))
        learner = learner_of(run)
        parts[number] = store_embeddings(folder, learner, run, device, tell)
        checks.append(partial(check_labels_of, run, learner, folder))
        say(f"embeddings of {part} ({learner.title}) are features {parts[number]}", unless=quiet)
    return "+".join(parts), checks
