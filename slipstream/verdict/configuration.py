"""What is to be compared: from a YAML file, or from words on the command line."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipstream.bench.http import Endpoint
from slipstream.bench.servers import Launch
from slipstream.errors import UserError
from slipstream.verdict.fields import Fields, read_file
from slipstream.verdict.results import Configuration
from slipstream.verdict.templates import EXAMPLES, PORT, TEMPLATES, Ingredients, recipe

READY_S = 1800.0
"""How long a server may take to load, if nobody says otherwise."""

ENGINES = ("slipstream", "vllm", "sglang", "llama-server", "tensorrt-llm", "unknown")

_OWN_URL = f"http://127.0.0.1:{PORT}"
_NAMED = re.compile(r"([^=\s/:]+)=(.+)", re.DOTALL)


@dataclass(frozen=True)
class Candidate:
    """One configuration to measure. Addresses and commands may hold ``{port}``."""

    name: str
    url: str
    command: tuple[str, ...] | None = None  # None: it runs already
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    ready_url: str | None = None
    ready_s: float = READY_S
    model: str = ""  # as requests name it; "" is the one that the server serves
    engine: str = "unknown"
    draft_tokens: int | None = None  # see ``results.Configuration``

    @property
    def needs_port(self) -> bool:
        """Whether it is to be told a free port."""
        return self.command is not None and PORT in self.url

    def at(self, port: int) -> "Candidate":
        """The same, told where to listen."""

        def told(text: str) -> str:
            return text.replace(PORT, str(port))

        return replace(
            self,
            url=told(self.url),
            command=tuple(map(told, self.command)) if self.command else None,
            environment={key: told(value) for key, value in self.environment.items()},
            ready_url=told(self.ready_url) if self.ready_url else None,
        )

    def launch(self) -> Launch:
        """How to start it. The word ``slipstream`` is this installation of it."""
        command = self.command or ()
        if command and command[0] == "slipstream":
            command = (sys.executable, "-m", *command)
        return Launch(
            self.name, command, self.environment, self.directory, self.ready_s, self.ready_url
        )

    def described(
        self, model: str = "", engine: str = "", versions: Mapping[str, str] | None = None
    ) -> Configuration:
        """For the results; what the server says of itself fills in what nobody knew."""
        return Configuration(
            name=self.name,
            command=list(self.command) if self.command else None,
            url=self.url,
            engine=self.engine if self.engine != "unknown" else engine or "unknown",
            model=model or self.model,
            draft_tokens=self.draft_tokens,
            versions=dict(versions or {}),
        )


def candidates_of(
    words: Sequence[str], given: Ingredients, baseline: str | None = None
) -> list[Candidate]:
    """From words, each a YAML file, a template, ``NAME=...``, or an address; the baseline first.

    Raises ``UserError``, with the line of the file, for whatever is wrong with them.
    """
    candidates: list[Candidate] = []
    for word in words:
        if word.endswith((".yaml", ".yml")):
            found, wanted = _from_file(Path(word), given)
            candidates += found
            baseline = baseline or wanted
        else:
            candidates.append(from_word(word, given))
    names = [candidate.name for candidate in candidates]
    if bad := [name for name in names if not name.strip() or not name.isprintable()]:
        raise UserError(f"{bad[0]!r} is no name: give a configuration one that can be printed")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"two configurations are called {twice[0]}: give them names of their own")
    if len(candidates) < 2:
        raise UserError(
            "a verdict needs at least two configurations: a YAML file, or words such as "
            + " ".join(EXAMPLES)
        )
    if baseline is not None and baseline not in names:
        raise UserError(f"the baseline {baseline} is none of {', '.join(names)}")
    candidates.sort(key=lambda candidate: candidate.name != (baseline or names[0]))
    return candidates


def from_word(word: str, given: Ingredients) -> Candidate:
    """``self:off``, ``http://host:8000``, ``mine=vllm:3``, ``mine=some command --port {port}``."""
    if word.partition(":")[0] in TEMPLATES:
        return _from_template(word, word, given)
    named = _NAMED.fullmatch(word)
    name, text = named.groups() if named else (None, word)
    if text.startswith(("http://", "https://")):
        return _checked(Candidate(name or text, text))
    if name and text.partition(":")[0] in TEMPLATES:
        return _from_template(name, text, given)
    if name and PORT in text:
        try:
            return Candidate(name, _OWN_URL, tuple(shlex.split(text)))
        except ValueError as error:
            raise UserError(f"{name}: {str(error).lower()} in {text}") from error
    raise UserError(
        f"{word!r} is no configuration; give a YAML file, a template such as self:off or vllm:3, "
        "NAME=http://host:port, or 'NAME=command ... {port}'"
    )


def _from_template(name: str, text: str, given: Ingredients) -> Candidate:
    made = recipe(text, given)
    return Candidate(
        name, _OWN_URL, made.command, engine=made.engine, draft_tokens=made.draft_tokens
    )


def _from_file(path: Path, given: Ingredients) -> tuple[list[Candidate], str | None]:
    """The configurations of a file, and the name of the baseline if it says so."""
    fields = read_file(path)
    given = replace(
        given,
        model=fields.text("model") or given.model,
        drafter=fields.text("drafter") or given.drafter,
    )
    baseline = fields.text("baseline")
    found = fields.items(
        "configurations",
        lambda word: from_word(word, given),
        lambda item: _from_fields(item, given),
    )
    fields.finish()
    return found, baseline


def _from_fields(fields: Fields, given: Ingredients) -> Candidate:
    name, template = fields.text("name"), fields.text("template")
    command, url = fields.words("launch"), fields.text("url")
    model, drafter, method = (fields.text(key) for key in ("model", "drafter", "method"))
    arguments = fields.words("args")
    environment, directory = fields.texts("env"), fields.text("directory")
    ready_url, ready_s = fields.text("ready"), fields.number("ready_s")
    engine, draft_tokens = fields.text("engine"), fields.whole("draft_tokens")
    fields.finish()
    if template is not None:
        if command or url:
            raise UserError("template goes without launch and url")
        own = Ingredients(
            model or given.model, drafter or given.drafter, method or given.method, arguments
        )
        made = _from_template(name or template, template, own)
        model = None  # the server says under which name it serves it
    elif drafter or method or arguments:
        raise UserError("drafter, method and args are for a template; put them into launch")
    else:
        made = _plain(name, command, url)
    if engine is not None and engine not in ENGINES:
        raise UserError(f"engine should be one of {', '.join(ENGINES)}, not {engine}")
    if made.command is None and (environment or directory or ready_url or ready_s is not None):
        raise UserError("env, directory, ready and ready_s are for a server that is launched")
    return _checked(
        replace(
            made,
            environment=environment,
            directory=Path(directory).expanduser() if directory else None,
            ready_url=ready_url,
            ready_s=READY_S if ready_s is None else ready_s,
            model=model or "",
            engine=engine or made.engine,
            draft_tokens=made.draft_tokens if draft_tokens is None else draft_tokens,
        )
    )


def _plain(name: str | None, command: Sequence[str], url: str | None) -> Candidate:
    """Without a template."""
    if not command and url is None:
        raise UserError("a configuration needs launch, url or template")
    if name is None:
        raise UserError("a configuration needs a name")
    if not command:
        return Candidate(name, url or "")
    if url is None and not any(PORT in word for word in command):
        raise UserError(f"launch needs {PORT} where its port goes, or url says where it listens")
    return Candidate(name, url or _OWN_URL, tuple(command))


def _checked(candidate: Candidate) -> Candidate:
    """Raises ``UserError`` if its addresses are none, or its directory is not there."""
    told = candidate.at(1)
    Endpoint.of(told.url)
    if told.ready_url is not None:
        Endpoint.of(told.ready_url.partition("?")[0])
    if told.directory is not None and not told.directory.is_dir():
        raise UserError(f"no folder {told.directory}")
    return candidate
