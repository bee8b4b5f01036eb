#include "runtime/nvtx.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace opwright::nvtx {
namespace {

/// Null where no tool listens. Loads it, so that it is none of Library's parts, which are made
/// under a lock.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("Opwright");
  return made;
}

}  // namespace

bool is_there() { return domain() != nullptr; }

void push(const std::string& name) {
  if (!is_there()) return;
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain(), &attributes);
}

void pop() {
  if (is_there()) nvtxDomainRangePop(domain());
}

}  // namespace opwright::nvtx

#else

namespace opwright::nvtx {

bool is_there() { return false; }
void push(const std::string&) {}
void pop() {}

}  // namespace opwright::nvtx

#endif
