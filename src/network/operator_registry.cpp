#include "network/operator_registry.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "base/library.h"

namespace opwright {
namespace {

struct Registry {
  LibraryLock mutex;
  std::map<std::string, std::shared_ptr<const OperatorLoader>, std::less<>> loaders;
};

Registry& registry() { return Library::part<Registry>(); }

}  // namespace

void register_operator_kind(std::string kind, OperatorLoader loader) {
  auto shared = std::make_shared<const OperatorLoader>(std::move(loader));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.loaders.insert_or_assign(std::move(kind), std::move(shared));
}

PlannedOperatorPtr load_operator(std::string_view kind, const Attributes& attributes,
                                 const OperatorLoadContext& context) {
  std::shared_ptr<const OperatorLoader> loader;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto found = all.loaders.find(kind);
    if (found != all.loaders.end()) loader = found->second;
  }
  require(loader != nullptr, "layer '", context.layer, "': there is no operator of the kind '",
          kind, "' in this version of the library");
  PlannedOperatorPtr op = (*loader)(attributes, context);
  if (!op)
    fail_with(ErrorCode::kINTERNAL_ERROR, "layer '", context.layer, "': loading its ", kind,
              " operator gave nothing");
  return op;
}

}  // namespace opwright
