"""The list of the commands of `tidings collect`."""

from tidings.cli.collect import candidates, feishu, keywords, mirror, notes, run, status
from tidings.cli.options import make_group

app = make_group("Gather content from media platforms.")
app.command("run")(run.run)
app.command("discover")(run.discover)
app.command("recover")(run.recover)
app.command("resume")(run.resume)
app.command("status")(status.status)
app.command("failed")(candidates.failed)
app.command("retry")(candidates.retry)
app.add_typer(keywords.app, name="keywords")
app.add_typer(notes.app, name="notes")
app.command("mirror")(mirror.mirror)
app.add_typer(feishu.app, name="feishu")
