#include "kernels/copy/copy_cpu.h"

#include <cstring>

namespace chorus::kernels {

Status copy_cpu(CpuContext&, const compute::CopyArgs& args) {
  const std::byte* source = static_cast<const CpuBuffer*>(args.source)->data() + args.source_offset;
  if (args.bytes > 0) std::memcpy(static_cast<CpuBuffer*>(args.target)->data() + args.target_offset, source, args.bytes);
  return {};
}

}  // namespace chorus::kernels
