"""An ONNX graph, built node by node: a call adds an operator and returns the name of its output."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankfold.errors import UserError

_MOST_BYTES = 2**31 - 2**20  # of a file: a limit of ONNX
_OPSET, _ML_OPSET, _IR = 17, 3, 8  # read by onnxruntime 1.13 and later


class Graph:
    """The nodes, values, inputs and outputs so far."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._values: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(operator, list(inputs), [name], domain=domain, **attributes)
        )
        return name

    def input(self, name: str, kind: str, shape: tuple[str | int, ...]) -> str:
        from onnx import TensorProto, helper

        kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
        self._inputs.append(helper.make_tensor_value_info(name, kinds[kind], list(shape)))
        return name

    def output(self, name: str, of: str) -> None:
        from onnx import TensorProto, helper

        self._nodes.append(helper.make_node("Identity", [of], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "D"]))

    def value(self, content: Tensor | np.generic) -> str:
        """A constant."""
        from onnx import numpy_helper

        if isinstance(content, Tensor):
            array = content.detach().cpu().contiguous().numpy()
        else:
            array = np.asarray(content)
        name = f"value_{len(self._values)}"
        self._values.append(numpy_helper.from_array(array, name))
        return name

    # ------------------------------------------------------------------ short forms

    def widen(self, of: str, axis: int) -> str:
        return self("Unsqueeze", of, self._axis(axis))

    def sum(self, of: str, axis: int, *, keep: bool = False) -> str:
        return self("ReduceSum", of, self._axis(axis), keepdims=int(keep))

    def cut(self, of: str, start: int, stop: int | None) -> str:
        """Columns from ``start`` to ``stop``."""
        ends = [start, 2**62 if stop is None else stop, 1]
        return self("Slice", of, *map(self._axis, ends))

    def linear(self, of: str, weight: Tensor, bias: Tensor) -> str:
        product = self("MatMul", of, self.value(weight.float().T))
        return self("Add", product, self.value(bias.float()))

    def unit(self, of: str, least: float) -> str:
        """Vectors of length 1; a norm below ``least`` counts as that."""
        norm = self("Sqrt", self.sum(self("Mul", of, of), 1, keep=True))
        return self("Div", of, self("Max", norm, self.value(np.float32(least))))

    def weighted_sum(self, weights: str, table: Tensor, ids: str) -> str:
        """sum_t weights [n, T] of rows of a table by ids [n, T]; [n, D]."""
        rows = self("Gather", self.value(table.float()), ids)
        return self("Squeeze", self("MatMul", self.widen(weights, 1), rows), self._axis(1))

    def with_columns(self, of: str, last: Tensor) -> str:
        """The same columns after those of every row."""
        ones = self("Mul", self.cut(of, 0, 1), self.value(np.float32(0)))
        columns = self("Add", ones, self.value(last.float()[None]))
        return self("Concat", of, columns, axis=1)

    def _axis(self, axis: int) -> str:
        return self.value(torch.tensor([axis]))

    def write(self, path: Path) -> None:
        import onnx
        from onnx import helper

        from rankfold import __version__

        graph = helper.make_graph(
            self._nodes, "rankfold", self._inputs, self._outputs, self._values
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, producer_name="rankfold", producer_version=__version__
        )
        model.ir_version = _IR
        if model.ByteSize() > _MOST_BYTES:
            raise UserError(
                f"{path.name} would have more than 2 GB, the limit of ONNX",
                hint="leave --onnx out, or fit a smaller width or vocabulary",
            )
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())
