#include "plugin/registry/source_language.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "base/library.h"

namespace opwright {

namespace {

struct SourceLanguages {
  LibraryLock mutex;
  std::map<std::string, SourceLanguage*> by_name;
};
SourceLanguages& languages() { return Library::part<SourceLanguages>(); }

}  // namespace

void set_source_language(const std::string& name, SourceLanguage* language) {
  SourceLanguages& all = languages();
  const std::lock_guard lock(all.mutex);
  if (language != nullptr)
    all.by_name[name] = language;
  else
    all.by_name.erase(name);
}

SourceLanguage* find_source_language(const std::string& name) {
  SourceLanguages& all = languages();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_name.find(name);
  return found != all.by_name.end() ? found->second : nullptr;
}

std::vector<SourceLanguage*> all_source_languages() {
  SourceLanguages& all = languages();
  const std::lock_guard lock(all.mutex);
  std::vector<SourceLanguage*> list;
  for (const auto& [name, language] : all.by_name) list.push_back(language);
  return list;
}

}  // namespace opwright
