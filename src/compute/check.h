// The one place where the arguments of every operation are checked, before any backend looks at them.
// Owns: the rules of compute/ops.h as code. Must not know: any backend. Pure; reads no buffer content.
// A failure is one invalid_argument line: operation, argument, expected and found.
#pragma once

#include "base/result.h"
#include "compute/backend.h"
#include "compute/ops.h"

namespace chorus::compute {

Status check(const EmbedArgs& args);
Status check(const LinearArgs& args);
Status check(const RmsNormArgs& args);
Status check(const GatedRmsNormArgs& args);
Status check(const SwigluArgs& args);
Status check(const CausalConvArgs& args);
Status check(const GatedDeltaArgs& args);
Status check(const QkNormRopeArgs& args);
Status check(const AttentionArgs& args);
Status check(const GatherRowsArgs& args);
Status check(const PointerScoresArgs& args);
Status check(const SegmentSoftmaxArgs& args);
Status check(const CopyArgs& args);
Status check(const LayerNormArgs& args);
Status check(const RopeArgs& args);
Status check(const HeadLinearArgs& args);
Status check(const AttendArgs& args);
Status check(const SelectKeysArgs& args);
Status check(const RouterArgs& args);
Status check(const ExpertFfnArgs& args);
Status check(const CombineRoutesArgs& args);
Status check(const ArgmaxArgs& args);
Status check(const SampleArgs& args);

// For Backend::create_expert_bank and write_expert.
Status check_bank(const ExpertShape& shape, uint32_t slots);
Status check_expert(const ExpertBank& bank, uint32_t slot, uint64_t record_bytes);

}  // namespace chorus::compute
