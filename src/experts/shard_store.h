// Experts read straight from the safetensors files of a model folder.
// Owns: positional reads and their split in parts. Which bytes an expert is made of is expert_reader's.
//
// Where a record's parts are runs of the file (no interleaving, no padding, no MXFP4), each run is read in pieces straight to its place,
// converted on the way when the types differ. Otherwise the expert's bytes are read whole and assembled.
#pragma once

#include <memory>

#include "base/result.h"
#include "experts/expert_reader.h"
#include "experts/expert_store.h"
#include "models/language_checkpoint.h"

namespace chorus::experts {

// Errors: unsupported (layers whose experts differ in shape), and those of ExpertReader::open.
Result<std::unique_ptr<ExpertStore>> open_shard_store(const models::LanguageCheckpoint& checkpoint, DType dtype, bool direct_io);

}  // namespace chorus::experts
