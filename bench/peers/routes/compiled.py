"""ONNX Runtime and OpenVINO: models of one operation, compiled and bound before they are run."""

from __future__ import annotations

import numpy as np

from .job import Job, Route


class OnnxRuntime(Route):
    """A model of one node (masked softmax: two), with inputs and outputs bound once. Attention is Microsoft's
    MultiHeadAttention, on its layout [batch, sequence, heads · dim]."""

    def __init__(self, threads: int) -> None:
        import onnx
        import onnxruntime

        self.onnx, self.library, self.threads = onnx, onnxruntime, threads
        self.about = f"version={onnxruntime.__version__}"

    def info(self, name, array, shape=None):
        """Of an input or output like `array`, or of another shape, whose names stand for any size."""
        helper = self.onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, array.shape if shape is None else shape)

    def session(self, nodes, inputs, output, constants):
        """The model of `nodes`, which may pack the arrays `constants`."""
        helper, library = self.onnx.helper, self.library
        weights = [self.onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, "case", inputs, [output], weights)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, ir_version=10, opset_imports=opsets)
        options = library.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        return library.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])

    def bound(self, session, feeds, out):
        """The session's inputs and output, in their places."""
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, self.library.OrtValue.ortvalue_from_numpy(array))
        binding.bind_output("out", "cpu", 0, np.float32, out.shape, out.ctypes.data)
        return binding

    def job(self, nodes, feeds, out, result=None, constants=()):
        """Runs `nodes` on the arrays `feeds`; `constants` names the weights among them."""
        inputs = {name: array for name, array in feeds.items() if name not in constants}
        infos = [self.info(name, array) for name, array in inputs.items()]
        session = self.session(nodes, infos, self.info("out", out), {name: feeds[name] for name in constants})
        binding = self.bound(session, inputs, out)
        return Job(
            lambda: session.run_with_iobinding(binding),
            lambda _: out if result is None else result(out),
            keep=feeds,
        )

    def gemm(self, a, b, out, constants=()):
        node = self.onnx.helper.make_node("MatMul", ["a", "b"], ["out"])
        return self.job([node], {"a": a, "b": b}, out, constants=constants)

    def softmax(self, x, mask, out):
        make_node = self.onnx.helper.make_node
        if mask is None:
            return self.job([make_node("Softmax", ["x"], ["out"], axis=-1)], {"x": x}, out)
        nodes = [
            make_node("Where", ["mask", "x", "hidden"], ["scores"]),
            make_node("Softmax", ["scores"], ["out"], axis=-1),
        ]
        feeds = {"x": x, "mask": mask, "hidden": np.array(-np.inf, np.float32)}
        return self.job(nodes, feeds, out, constants=("hidden",))

    def attention(self, q, k, v, mask, causal, out):
        batch, heads, length, dim = q.shape

        def side_by_side(x):
            return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, -1, heads * dim)

        feeds = {name: side_by_side(x) for name, x in (("q", q), ("k", k), ("v", v))}
        names = ["q", "k", "v"]
        if mask is not None and mask.dtype == np.bool_ and mask.shape[2] > 1:
            mask = np.where(mask, np.float32(0), np.float32(-np.inf))  # it takes padding or a bias
        if mask is not None and mask.dtype == np.bool_:
            feeds["padding"] = mask[:, 0, 0].astype(np.int32)
            names += ["", "padding"]
        elif mask is not None:
            feeds["bias"] = mask
            names += ["", "", "bias"]
        node = self.onnx.helper.make_node(
            "MultiHeadAttention",
            names,
            ["out"],
            domain="com.microsoft",
            num_heads=heads,
            unidirectional=int(causal),
        )
        flat = out.reshape(batch, length, heads * dim)
        return self.job(
            [node], feeds, flat, lambda y: y.reshape(batch, length, heads, dim).transpose(0, 2, 1, 3)
        )


class OnnxRuntimePrepacked(OnnxRuntime):
    """b is a weight of the model."""

    def gemm(self, a, b, out):
        return super().gemm(a, b, out, constants=("b",))


class OpenVino(Route):
    """A compiled model of one operation, one stream, float32 (the default may be bfloat16), on our memory."""

    def __init__(self, threads: int) -> None:
        import openvino
        from openvino import opset13

        self.library, self.ops = openvino, opset13
        self.core = openvino.Core()
        self.settings = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "EXECUTION_MODE_HINT": "ACCURACY",
        }
        self.about = f"version={openvino.__version__.split('-')[0]}"

    def parameter(self, array):
        return self.ops.parameter(array.shape, array.dtype)

    def request(self, node, parameters):
        compiled = self.core.compile_model(self.library.Model([node], parameters), "CPU", self.settings)
        return compiled.create_infer_request()

    def job(self, node, parameters, arrays, out):
        request = self.request(node, parameters)
        for index, array in enumerate(arrays):
            request.set_input_tensor(index, self.library.Tensor(array, shared_memory=True))
        request.set_output_tensor(self.library.Tensor(out, shared_memory=True))
        return Job(lambda: request.infer(share_inputs=True, share_outputs=True), lambda _: out, keep=arrays)

    def gemm(self, a, b, out):
        parameters = [self.parameter(a), self.parameter(b)]
        return self.job(self.ops.matmul(*parameters, False, False), parameters, [a, b], out)

    def softmax(self, x, mask, out):
        parameters = [self.parameter(array) for array in (x, mask) if array is not None]
        scores = parameters[0]
        if mask is not None:
            scores = self.ops.select(parameters[1], scores, self.ops.constant(np.float32(-np.inf)))
        return self.job(self.ops.softmax(scores, 1), parameters, [x] if mask is None else [x, mask], out)

    def attention(self, q, k, v, mask, causal, out):
        arrays = [q, k, v] if mask is None else [q, k, v, mask]
        parameters = [self.parameter(array) for array in arrays]
        node = self.ops.scaled_dot_product_attention(*parameters, causal=causal)
        return self.job(node, parameters, arrays, out)


class OpenVinoPrepacked(OpenVino):
    """b is a constant of the model."""

    def gemm(self, a, b, out):
        parameter = self.parameter(a)
        return self.job(self.ops.matmul(parameter, self.ops.constant(b), False, False), [parameter], [a], out)
