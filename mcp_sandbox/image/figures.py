"""Lets what a program would show on a screen become files: matplotlib and Pillow figure-N.png, plotly figure-N.html.

Every Python in the image imports this at its start, as `sandbox_figures`. So it costs next to nothing there, and
changes nothing for programs that show nothing: it waits for three modules to be imported. A backend of our own would
miss the programs that choose one themselves (`matplotlib.use("Agg")`), which is what most of them do.
"""

import sys

MAX_LEFT_OPEN = 20
"""Figures that are drawn at the end: each takes a while of the program's time."""


class Waiter:
    """Finds no module, but learns which are wanted."""

    def find_spec(self, name, path=None, target=None):
        prepare = PREPARE.get(name)
        if prepare is None:
            return None
        del PREPARE[name]  # the next who asks is this very function
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_prepare(module):
                execute(module)
                try:
                    prepare(module)
                except Exception as error:  # a release that is built otherwise: then nothing is shown
                    complain(f"{name} shows no figures: {error}")

            spec.loader.exec_module = execute_and_prepare
        return spec


def prepare_matplotlib(pyplot):
    """Let `show` and the end of the program save the figures that are open and that nobody saved."""
    import atexit
    import functools
    import os
    import weakref

    from matplotlib.backend_bases import FigureCanvasBase

    saved = weakref.WeakSet()
    process = os.getpid()
    print_figure, show = FigureCanvasBase.print_figure, pyplot.show

    @functools.wraps(print_figure)
    def print_and_note(canvas, *args, **options):
        printed = print_figure(canvas, *args, **options)
        saved.add(canvas.figure)  # only now: one that could not be saved comes out at the end
        return printed

    @functools.wraps(show)
    def save_and_close(*args, **options):
        if options.get("block", True) is False or is_on_a_screen(pyplot):
            return show(*args, **options)
        save_open_figures()
        pyplot.close("all")  # as when a window is closed: what is drawn next is another figure
        return None

    def save_open_figures():
        unsaved = [figure for figure in map(pyplot.figure, pyplot.get_fignums()) if figure not in saved]
        drawn = [figure for figure in unsaved if len(figure.get_children()) > 1]
        for figure in drawn[:MAX_LEFT_OPEN]:
            keep(".png", functools.partial(figure.savefig, format="png", bbox_inches="tight"))
        if len(drawn) > MAX_LEFT_OPEN:
            complain(f"{MAX_LEFT_OPEN} of {len(drawn)} open figures were saved")

    def save_at_the_end():
        if os.getpid() == process and not is_on_a_screen(pyplot):
            save_open_figures()

    FigureCanvasBase.print_figure = print_and_note
    pyplot.show = save_and_close
    atexit.register(save_at_the_end)


def is_on_a_screen(pyplot):
    return bool(pyplot.get_fignums()) and pyplot.gcf().canvas.required_interactive_framework is not None


def prepare_pillow(image_show):
    """Let `Image.show` save the picture."""

    class Saver(image_show.Viewer):
        format = "PNG"

        def show_image(self, image, **options):
            keep(".png", lambda file: image.save(file, "PNG"))
            return 1

    image_show.register(Saver(), 0)


def prepare_plotly(renderers_module):
    """Let `show` write a page that needs nothing from elsewhere, whatever it is asked to show it in."""
    from plotly.io.base_renderers import ExternalRenderer

    class Writer(ExternalRenderer):
        config = None  # `show` sets what it is given where there is an attribute of that name

        def render(self, fig_dict):
            from plotly.io import to_html

            page = to_html(fig_dict, config=self.config, include_plotlyjs=True, validate=False)
            keep(".html", lambda file: file.write(page.encode("utf-8")))

    renderers = renderers_module.renderers
    for name in [*renderers, "sandbox"]:  # a browser, a notebook: programs name what they were written for
        renderers[name] = Writer()
    renderers.default = "sandbox"


def keep(ending, write):
    """Write the next free figure-N of the working folder; what cannot be written is told, and no more."""
    import os

    folder = "/scratch" if os.access("/scratch", os.W_OK) else os.getcwd()
    for number in range(1, 10000):
        path = os.path.join(folder, f"figure-{number}{ending}")
        try:
            file = open(path, "xb")
        except FileExistsError:
            continue
        except OSError as error:
            complain(f"{path}: {error.strerror}")
            return
        try:
            with file:
                write(file)
        except Exception as error:
            os.unlink(path)
            complain(f"figure {number} cannot be drawn: {error}")
        return


def complain(words):
    print(f"sandbox: {words}", file=sys.stderr)


PREPARE = {
    "matplotlib.pyplot": prepare_matplotlib,
    "PIL.ImageShow": prepare_pillow,
    "plotly.io._renderers": prepare_plotly,
}
sys.meta_path.insert(0, Waiter())
