"""How an engine is started, as plain data that crosses the process boundary."""

from typing import Literal

import msgspec

from slipstream.engine.params import Speculation
from slipstream.kernels.interface import KVDtype
from slipstream.models.quantize import Quantization

LogLevel = Literal["debug", "info", "warning", "error"]


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the engine process needs to know before it can load."""

    model: str  # "default", a folder, a .gguf file, or a Hugging Face name
    quantization: Quantization = "none"  # of the weights, while they are loaded
    max_model_len: int | None = None  # None: the model's own limit, if the K/V memory holds it
    max_running_requests: int = 256
    kv_memory: int | None = None  # bytes; None: a quarter of the free memory, at most 4 GiB
    kv_dtype: KVDtype = "auto"  # of keys and values; auto: what the kernels store best
    max_step_rows: int = 256  # known tokens of one step, draft nodes apart; prompts are cut to fit
    prefix_cache: bool = True
    speculation: Speculation = Speculation()
    drafter: str = "auto"  # "auto", "ngram", a folder, or a Hugging Face name
    threads: int | None = None  # None: as many as there are cores
    log_level: LogLevel = "info"
