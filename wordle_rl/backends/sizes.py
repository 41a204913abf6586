"""The sizes of a model, as its config.json says them. No weights are read."""

from pathlib import Path
from typing import Any, NamedTuple

from wordle_rl.backends.adapters import ADAPTER, find_base_name, is_adapter
from wordle_rl.backends.loading import explain_load_errors, notice_offline
from wordle_rl.policy.models import MAIN, UNTRAINED, known_models, locate
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.runs.files import read_object

# A family is here once the tests have compared the engine with transformers' own forward pass. All
# others play through transformers' own cache, see torch/plain.py.
FAMILIES = (
    "gemma3_text",
    "gpt2",
    "llama",
    "mistral",
    "olmo2",
    "olmo3",
    "phi3",
    "qwen2",
    "qwen3",
    "smollm3",
)
_WRAPPERS = {"gemma3": "gemma3_text"}  # models with images -> their language model
_FAST_FAMILIES = ("gemma3_text", "llama", "qwen2", "qwen3")
_ROTATIONS = ("default", "linear")  # which depend on a token's position alone
# What configs of these families can have besides.
_SLOW_OPTIONS = (
    "attention_bias",
    "mlp_bias",
    "use_bidirectional_attention",
    "attn_logit_softcapping",
)
LONGEST_WRITTEN_OUT = 512  # tokens; longer sequences would need too much memory for their scores
_LARGE = 50_000_000  # bytes of a pretrained model's weights


class Sizes(NamedTuple):
    """The sizes of a decoder, as its config.json says them."""

    vocabulary: int
    hidden: int
    inner: int  # width of the feed-forward part
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool = True  # whether embedding and head are the same weights
    gated: bool = True  # whether the feed-forward part has a gate
    pictures: int = 0  # weights of the part that sees pictures
    norms: int = 2  # of a layer
    fast: bool = False  # whether a CPU has its layers written out, see torch/fast/
    bits: float = 0.0  # of a weight whose file is quantised
    known: bool = True  # whether the engine knows the family
    others: int = 0  # weights besides those that the matrices and the embedding make

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each matrix of a layer."""
        hidden, inner = self.hidden, self.inner
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        gate = {"mlp.gate_proj": (hidden, inner)} if self.gated else {}
        return {
            "self_attn.q_proj": (hidden, queries),
            "self_attn.k_proj": (hidden, keys),
            "self_attn.v_proj": (hidden, keys),
            "self_attn.o_proj": (queries, hidden),
            **gate,
            "mlp.up_proj": (hidden, inner),
            "mlp.down_proj": (inner, hidden),
        }

    @property
    def weights_in_layers(self) -> int:
        """Weights of all layers' matrices."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.matrices.values())

    @property
    def parameters(self) -> int:
        """Weights, but for biases and most norms, which are a few thousandths."""
        ends = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.weights_in_layers + ends + (2 * self.layers + 1) * self.hidden + self.others

    def keys_values(self, size: int = 2) -> int:
        """Bytes of a token's keys and values in all layers. size: bytes of a number."""
        return 2 * self.layers * self.kv_heads * self.head_dim * size


# So that memory can be planned before anything is downloaded.
KNOWN = {name: Sizes(**of["sizes"]) for name, of in known_models().items() if "sizes" in of}


def is_known(config: Any) -> bool:
    """Whether the engine knows the family of a transformers config."""
    text = config.get_text_config().model_type
    return text in FAMILIES and _WRAPPERS.get(config.model_type, config.model_type) == text


def is_written_out(text: Any) -> bool:
    """Whether torch/fast/ has the layers of a transformers config of a text model."""
    rope = getattr(text, "rope_parameters", None) or {}
    kinds, scope = set(getattr(text, "layer_types", None) or ["full_attention"]), {"full_attention"}
    rotations = [rope]
    if text.model_type == "gemma3_text":  # each kind of layer has its own rotation
        scope.add("sliding_attention")
        rotations = [rope.get(kind, {}) for kind in kinds]
    return (
        text.model_type in _FAST_FAMILIES
        and kinds <= scope
        and all(entry.get("rope_type", "default") in _ROTATIONS for entry in rotations)
        and not any(getattr(text, name, None) for name in _SLOW_OPTIONS)
    )


def read_sizes(config: Any) -> Sizes:
    """The sizes in a transformers config."""
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", 1)
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    experts = getattr(text, "num_experts_per_tok", None) or 0  # experts, which keep what they see
    inner = max(inner, experts * (getattr(text, "moe_intermediate_size", None) or inner))
    vision = getattr(config, "vision_config", None)
    rounding = getattr(config, "quantization", None)  # mlx-lm's, with a scale and a bias a group
    pictures = 0
    if vision:
        width = vision.hidden_size
        pictures = vision.num_hidden_layers * width * (4 * width + 2 * vision.intermediate_size)
    sizes = Sizes(
        vocabulary=text.vocab_size,
        hidden=text.hidden_size,
        inner=inner,
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        tied=text.tie_word_embeddings,
        gated=text.model_type != "gpt2",
        pictures=pictures,
        norms=4 if text.model_type.startswith("gemma") else 2,
        fast=is_written_out(text),
        bits=rounding["bits"] + 32 / rounding["group_size"] if rounding else 0.0,
        known=is_known(config),
    )
    if sizes.known:
        return sizes
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):  # weights without numbers, which are counted
        model: Any = AutoModelForCausalLM.from_config(config)
    return sizes._replace(others=model.num_parameters() - sizes.parameters - pictures)


def find_sizes(settings: ModelSettings) -> tuple[Sizes, LoraSettings | None]:
    """The sizes of a model, and its adapter.

    Uses the network only for a hub model that is not in KNOWN. Raises ConfigError in one line when
    there is no config.
    """
    base, revision, lora = settings.location, settings.revision, settings.lora
    if base == UNTRAINED:
        from wordle_rl.backends.tiny_model import build_tokenizer

        shape: Any = settings.shape
        vocabulary = len(build_tokenizer(shape.get("vocabulary", "letters")))
        names = ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads")
        sizes = [shape[name] for name in names]
        return Sizes(vocabulary, *sizes, head_dim=sizes[0] // sizes[3]), lora
    if is_adapter(folder := Path(base)):
        config = read_object(folder / ADAPTER)
        lora, revision = _read_lora(config), config.get("revision") or MAIN
        base = locate(find_base_name(folder))
    if base in KNOWN and not Path(base).is_dir():
        return KNOWN[base], lora
    from transformers import AutoConfig

    notice_offline(base)
    with explain_load_errors(base, on_disk=Path(base).is_dir()):
        hub_config = AutoConfig.from_pretrained(base, revision=revision, trust_remote_code=False)
        return read_sizes(hub_config), lora


def _read_lora(config: dict[str, Any]) -> LoraSettings:
    """An adapter's settings, in either form."""
    if "r" in config:
        targets, rank, alpha = config["target_modules"], config["r"], config["lora_alpha"]
    else:
        inner = config["lora_parameters"]
        targets, rank, alpha = inner["keys"], inner["rank"], inner["scale"] * inner["rank"]
    if isinstance(targets, list):  # perhaps of whole names
        targets = sorted({target.rpartition(".")[2] for target in targets})
    return LoraSettings(rank=rank, alpha=alpha, targets=targets)


def is_large(model: ModelSettings) -> bool:
    """Whether a model, or the one under an adapter, is of a real size and none of the project's."""
    if model.path == UNTRAINED:
        return False
    folder = Path(model.location)
    if is_adapter(folder):
        folder = Path(locate(find_base_name(folder)))
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return not folder.is_dir() or sum(file.stat().st_size for file in files) >= _LARGE
