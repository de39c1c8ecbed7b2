"""The registered op types of which there is no sample, and why."""

from __future__ import annotations

# fmt: off
_BY_REASON = {
    "gives no floating numbers":
        "ApproximateEqual ArgMax ArgMin AsString Assert AudioSummary AudioSummaryV2 BitwiseAnd "
        "BitwiseOr BitwiseXor BroadcastGradientArgs ConcatOffset DecodeBase64 DeleteSessionTensor "
        "DenseToDenseSetOperation DenseToSparseSetOperation EditDistance EncodeBase64 EncodeProto "
        "Equal GenerateVocabRemapping GetSessionHandle GetSessionHandleV2 Greater GreaterEqual "
        "HistogramSummary ImageSummary Invert InvertPermutation LeftShift Less LessEqual "
        "LogicalAnd LogicalNot LogicalOr LoopCond MergeSummary Multinomial NonMaxSuppression "
        "NonMaxSuppressionV2 NonMaxSuppressionWithOverlaps NotEqual PopulationCount "
        "RandomIndexShuffle RaggedRange Rank ReduceJoin RegexReplace RightShift ScalarSummary "
        "SdcaFprint SdcaShrinkL1 SerializeTensor SetSize Shape ShapeN Size SparseMatrixNNZ "
        "SparseToSparseSetOperation StatelessMultinomial StatelessRandomUniformFullInt "
        "StatelessRandomUniformFullIntV2 StatelessRandomUniformInt StatelessRandomUniformIntV2 "
        "StringJoin StringSplit StringToHashBucket StringToHashBucketFast "
        "StringToHashBucketStrong TensorListElementShape TensorListLength TensorSummary "
        "TensorSummaryV2 VarIsInitializedOp VariableShape",
    "takes no floating numbers":
        "AudioMicrofrontend Const DecodePaddedRaw DecodeProtoV2 DecodeRaw GetSessionTensor "
        "ParseTensor RandomStandardNormal RandomUniform SparseMatrixZeros StatelessRandomNormal "
        "StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformV2 "
        "StatelessTruncatedNormal StatelessTruncatedNormalV2 StringToNumber Timestamp "
        "TruncatedNormal _EagerConst",
    "stops the gradient, which is what it is for": "StopGradient",
    "raises where it is differentiated, which is what it is for":
        "DebugGradientIdentity DebugGradientRefIdentity PreventGradient",
    "rounds, and passes the gradient as if it did not, which is what it is for":
        "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel "
        "QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 "
        "QuantizeAndDequantizeV4Grad",
    "draws at random, so that differences do not tell its derivative":
        "ParameterizedTruncatedNormal RandomCrop RandomGamma RandomShuffle "
        "SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 "
        "StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2 "
        "StatelessRandomGammaV3 StatelessRandomPoisson",
    "belongs to reading files, queues, tables, summaries or training on another machine":
        "CTCBeamSearchDecoder CTCGreedyDecoder FixedLengthRecordReader "
        "GenerateBoundingBoxProposals HashTable HashTableV2 IdentityReader InitializeTable "
        "InitializeTableFromTextFile InitializeTableFromTextFileV2 InitializeTableV2 LMDBReader "
        "LoadAndRemapMatrix LookupTableFind LookupTableFindV2 LookupTableInsert "
        "LookupTableInsertV2 LookupTableSize LookupTableSizeV2 MutableDenseHashTable "
        "MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors "
        "MutableHashTableOfTensorsV2 MutableHashTableV2 QueueClose QueueDequeue QueueDequeueMany "
        "QueueDequeueUpTo QueueEnqueue QueueEnqueueMany QueueSize ReaderNumRecordsProduced "
        "ReaderNumWorkUnitsCompleted ReaderRead ReaderReadUpTo ReaderReset ReaderRestoreState "
        "ReaderSerializeState ReduceDataset SdcaOptimizer SdcaOptimizerV2 Stack StackClose "
        "StackPop StackPush TFRecordReader TextLineReader WholeFileReader",
    "takes a variable, which has no entries":
        "Assign AssignAdd AssignSub ReadVariableOp RefIdentity ResourceGather ResourceGatherNd "
        "ScatterAdd ScatterDiv ScatterMul ScatterNdAdd ScatterNdSub ScatterNdUpdate ScatterSub",
    "belongs to the loops, branches and arrays of TensorFlow 1, which version 2 does not build":
        "Enter Exit Merge NextIteration RefEnter RefExit RefMerge RefNextIteration RefSwitch "
        "Switch TensorArray TensorArrayClose TensorArrayCloseV2 TensorArrayCloseV3 "
        "TensorArrayConcat "
        "TensorArrayConcatV2 TensorArrayGather TensorArrayGatherV2 TensorArrayGrad "
        "TensorArrayGradV2 TensorArrayGradV3 TensorArrayGradWithShape TensorArrayRead "
        "TensorArrayReadV2 TensorArrayScatter TensorArrayScatterV2 TensorArraySize "
        "TensorArraySizeV2 TensorArraySizeV3 TensorArraySplit TensorArraySplitV2 TensorArrayV2 "
        "TensorArrayV3 TensorArrayWrite TensorArrayWriteV2",
    "has no kernel on the CPU":
        "AllToAll CTCLossV2 CollectivePermute CrossReplicaSum CudnnRNN CudnnRNNV2 CudnnRNNV3 "
        "NcclAllReduce NcclBroadcast NcclReduce SparseMatrixAdd SparseMatrixMul "
        "SparseMatrixSoftmax TPUEmbeddingActivations TPUReplicatedInput XlaClusterOutput XlaEinsum "
        "XlaSharding XlaSpmdFullToShardShape XlaSpmdShardToFullShape XlaVariadicReduce",
    "moves tensors within a mesh of devices": "CopyToMesh CopyToMeshGrad Relayout RelayoutLike",
    "cannot be built any more":
        "BatchNormWithGlobalNormalization QuantizeAndDequantize Queue ScatterNdDiv ScatterNdMul "
        "StatelessRandomShuffle TopK",
    "wraps other tensors, and is not part of the public API":
        "CompositeTensorVariantFromComponents CompositeTensorVariantToComponents "
        "PyFuncStateless TensorListPushBackBatch",
}
# fmt: on

NOT_SAMPLED = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
