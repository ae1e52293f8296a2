"""What an EAGLE-3 drafter is made of (Li et al., "EAGLE-3", 2025)."""

from dataclasses import dataclass
from typing import Self

from slipstream.errors import UserError
from slipstream.models.config import ModelConfig, RopeScaling

_DEFAULT_FEATURES = 3


@dataclass(frozen=True, kw_only=True)
class Eagle3Config:
    """A drafter: one decoder layer over pairs of (feature, token).

    ``vocab_size`` and ``target_hidden_size`` are the target's, all other sizes the drafter's own.
    ``feature_layers`` names the 0-based target layers whose *input*, the residual stream before any
    norm, makes up the feature; None stands for the defaults of the target's depth.

    The four switches, in the words of vLLM and speculators; the last three are "EAGLE 3.1":

    - ``norm_before_residual``: the layer's residual is the feature after ``hidden_norm``.
    - ``norm_before_fc``: one RMS norm over the concatenated features before ``fc``.
    - ``fc_norm``: one RMS norm for each feature before they are concatenated.
    - ``norm_output``: the next level takes the layer's output after the final norm, not before.
    """

    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_position_embeddings: int
    feature_layers: tuple[int, ...] | None = None
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    def __post_init__(self) -> None:
        """Raises ``UserError`` for numbers with which no drafter can be built."""
        if self.num_heads % self.num_kv_heads:
            raise UserError(
                f"{self.num_heads} attention heads cannot share {self.num_kv_heads} key/value "
                "heads; the first must be a multiple of the second"
            )
        if self.head_dim % 2:
            raise UserError(f"head size {self.head_dim} is odd; rotary embedding needs an even one")
        if self.rope_theta <= 1:
            raise UserError(f"rotary base {self.rope_theta} is too small; it should be above 1")
        if self.draft_vocab_size > self.vocab_size:
            raise UserError(
                f"the drafter's own vocabulary of {self.draft_vocab_size} tokens is larger than "
                f"the target's of {self.vocab_size}, of which it should be a part"
            )
        if self.norm_before_fc and self.fc_norm:
            raise UserError(
                "norm_before_fc and fc_norm are both set; a drafter norms its features once"
            )

    @property
    def features(self) -> int:
        """How many of the target's layers make up a feature."""
        return _DEFAULT_FEATURES if self.feature_layers is None else len(self.feature_layers)

    @property
    def fc_norm_names(self) -> list[str]:
        """Tensors of the norms before ``fc``: none, one, or one for each feature."""
        if self.norm_before_fc:
            return ["input_norm.weight"]
        return [f"fc_norm.{i}.weight" for i in range(self.features)] if self.fc_norm else []

    @property
    def fc_parts(self) -> int:
        """How many matrices of equal width ``fc`` is: features normed apart have one each."""
        return self.features if self.fc_norm else 1

    def layers_for(self, target_layers: int) -> tuple[int, ...]:
        """The layers whose input is a feature, in a target of so many layers.

        The default is that of every implementation: ``idx == 2, len // 2, len - 3`` before the
        layer runs in SafeAILab's modeling_*_kv.py, the same numbers in vLLM and SGLang.
        """
        if self.feature_layers is not None:
            return self.feature_layers
        return (2, target_layers // 2, target_layers - 3)

    @classmethod
    def for_target(cls, target: ModelConfig, draft_vocab_size: int) -> Self:
        """A drafter whose layer has the shape of one of the target's."""
        return cls(
            vocab_size=target.vocab_size,
            draft_vocab_size=draft_vocab_size,
            hidden_size=target.hidden_size,
            target_hidden_size=target.hidden_size,
            intermediate_size=target.intermediate_size,
            num_heads=target.num_heads,
            num_kv_heads=target.num_kv_heads,
            head_dim=target.head_dim,
            rms_norm_eps=target.rms_norm_eps,
            rope_theta=target.rope_theta,
            rope_scaling=target.rope_scaling,
            max_position_embeddings=target.max_position_embeddings,
        )
