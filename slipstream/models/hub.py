"""Models by their Hugging Face name."""

from collections.abc import Sequence
from pathlib import Path

from slipstream.errors import UserError

# Only what is read: repositories often hold the same weights in several formats.
MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


def fetch_repository(name: str, files: Sequence[str] = MODEL_FILES) -> Path:
    """Folder with ``files`` of the repository ``owner/name``, downloaded unless already cached.

    Raises ``UserError`` if it does not exist, needs a login, or cannot be reached.
    """
    import huggingface_hub
    from huggingface_hub import errors

    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(files)))
    except errors.HFValidationError:
        reason = "that is not a possible Hugging Face name"
    except errors.GatedRepoError:
        reason = "its owner grants access by request; ask for it, then log in with `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "there is neither such a path here nor such a repository there that you may read"
    except errors.LocalEntryNotFoundError:
        reason = (
            "there is no such path here, it is not in the cache, and the network cannot be reached"
        )
    except (OSError, errors.HfHubHTTPError) as error:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
    raise UserError(f"cannot fetch {name!r} from Hugging Face: {reason}")
