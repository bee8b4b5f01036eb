#include "plugin/registry/source_language.h"

#include <map>
#include <mutex>

#include "base/error.h"

namespace opwright {

namespace {

struct Languages {
  std::mutex mutex;
  std::map<std::string, SourceLanguage*> by_name;
};
Languages& languages() {
  static auto* instance = new Languages;
  return *instance;
}

}  // namespace

void set_source_language(const std::string& name, SourceLanguage* language) {
  Languages& all = languages();
  const std::lock_guard lock(all.mutex);
  if (language != nullptr)
    all.by_name[name] = language;
  else
    all.by_name.erase(name);
}

SourceLanguage* find_source_language(const std::string& name) {
  Languages& all = languages();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_name.find(name);
  return found != all.by_name.end() ? found->second : nullptr;
}

std::vector<SourceLanguage*> all_source_languages() {
  Languages& all = languages();
  const std::lock_guard lock(all.mutex);
  std::vector<SourceLanguage*> list;
  for (const auto& [name, language] : all.by_name) list.push_back(language);
  return list;
}

}  // namespace opwright
