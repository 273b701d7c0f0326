"""`dpvb fit sbn`, `picture`: sigmoid belief networks, and pictures of models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import files, options, resumption
from dpvb.cli.root import app, fit
from dpvb.cli.terminal import progress_bar, remark, spent
from dpvb.errors import ParameterError, check_integer


@fit.command("sbn")
@resumption.planned
def fit_sbn(
    data: options.Images,
    out: options.Out,
    epsilon: options.Epsilon,
    delta: options.Delta,
    hidden: Annotated[int, typer.Option(help="Number K of hidden units.")] = 100,
    threshold: options.Threshold = None,
    form: Annotated[
        str,
        typer.Option(help="first_order, six_blocks or paper: what is released.", rich_help_panel=options.PLAN),
    ] = "first_order",
    group: options.Group = None,
    seed: options.Seed = None,
    cluster: options.Cluster = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    *,
    plan: dict[str, Any],
) -> None:
    """Fit a sigmoid belief network to private rows of zeros and ones, such as images.

    A row with any other entry silently counts as no row; --threshold makes numbers binary.

        dpvb fit sbn train-images-idx3-ubyte.gz --threshold 0 --hidden 100 --epsilon 1 --delta 1e-5 --out digits.dpvb

        dpvb picture digits.dpvb --out digits.png
    """
    import dpvb

    check_integer("hidden", hidden, low=1)
    files.check_target(out, overwrite)
    rows = files.read_matrix(data)
    persons = None if group is None else files.read_matrix(group)
    model = dpvb.SigmoidBeliefNetwork(
        hidden,
        epsilon=epsilon,
        delta=delta,
        form=form,
        threshold=threshold,
        **plan,
        random_state=seed,
    )
    with progress_bar(epsilon, delta, quiet=quiet) as tell:
        model.fit(rows, group=persons, progress=tell, cluster=cluster)
    model.save(out)
    remark(f"{out}: {hidden} hidden units, {spent(model)}. Next: dpvb picture {out} --out weights.png; dpvb show {out}")


@app.command()
def picture(
    model: options.Model,
    out: Annotated[Path, typer.Option(help="The picture to write: .png, .pdf or .svg.", show_default=False)],
    width: Annotated[
        int | None, typer.Option(help="Width of an image of a belief network; square images need none.")
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Draw a model: topics as bars, or the weights of a belief network as images.

    dpvb picture digits.dpvb --out digits.png
    """
    from dpvb.results import pictures

    if out.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ParameterError(f"--out must end in .png, .pdf or .svg, got {out.name!r}.")
    files.check_target(out, overwrite)
    fitted = files.load_model(model, "LDA", "SigmoidBeliefNetwork")
    if type(fitted).__name__ == "LDA":
        names = fitted.vocabulary_ or [f"#{v}" for v in range(fitted.n_features_in_)]
        pictures.topics_picture(out, fitted.components_, names, fitted.privacy_)
    else:
        total = fitted.n_features_in_
        width = math.isqrt(total) if width is None else check_integer("width", width, low=1)
        if total % width:
            raise ParameterError(f"--width must divide the {total} units of a row, got {width}.")
        pictures.weights_picture(out, fitted.components_, fitted.privacy_, shape=(total // width, width))
    remark(f"{out}: written.")
