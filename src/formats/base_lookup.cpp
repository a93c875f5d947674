#include "formats/base_lookup.h"

#include <cstdlib>
#include <vector>

#include "base/bytes.h"

namespace chorus::formats {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kReferenceBytesMax = 4096;

bool is_model_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "config.json", error);
}

// A name that can be one folder of the cache: no separators, not "." or "..".
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

std::vector<fs::path> local_candidates(const BaseRequest& request) {
  const fs::path name(request.name);
  if (name.is_absolute()) return {name};
  const fs::path beside = fs::absolute(request.adapter_folder).lexically_normal();
  // "folder/" has an empty last part: its parent is the folder itself.
  const fs::path parent = beside.has_filename() ? beside.parent_path() : beside.parent_path().parent_path();
  std::vector<fs::path> candidates{request.adapter_folder / name, parent / name};
  if (name.has_filename() && name.filename() != name) candidates.push_back(parent / name.filename());
  candidates.push_back(fs::current_path() / name);
  return candidates;
}

std::optional<fs::path> environment_path(const char* variable) {
  const char* value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nothing here writes the environment
  if (value == nullptr || *value == '\0') return std::nullopt;
  return fs::path(value);
}

std::optional<fs::path> cache_folder() {
  if (const auto cache = environment_path("HF_HUB_CACHE")) return cache;
  if (const auto home = environment_path("HF_HOME")) return *home / "hub";
  if (const auto cache = environment_path("XDG_CACHE_HOME")) return *cache / "huggingface" / "hub";
  if (const auto home = environment_path("HOME")) return *home / ".cache" / "huggingface" / "hub";
  return std::nullopt;
}

// models--ORG--NAME/snapshots/REVISION. A branch or tag is looked up in refs/. A pinned revision is never replaced by another.
Result<fs::path> cached_snapshot(const fs::path& cache, const BaseRequest& request) {
  std::string folder = "models--" + request.name;
  for (size_t at = folder.find('/'); at != std::string::npos; at = folder.find('/', at)) folder.replace(at, 1, "--");
  if (!is_plain_name(folder)) return make_error(ErrorCode::not_found, quote_text(request.name) + " is no model id");
  const fs::path repository = cache / folder;
  std::string revision = request.revision.value_or("main");
  if (!is_plain_name(revision))
    return make_error(ErrorCode::not_found, repository.string() + " (revision " + quote_text(revision) + " is no plain name)");
  std::error_code error;
  if (fs::is_regular_file(repository / "refs" / revision, error)) {
    CHORUS_ASSIGN(std::string target, read_text_file(repository / "refs" / revision, kReferenceBytesMax));
    while (!target.empty() && (target.back() == '\n' || target.back() == '\r' || target.back() == ' ')) target.pop_back();
    if (!is_plain_name(target))
      return make_error(ErrorCode::invalid_input,
                        (repository / "refs" / revision).string() + ": expected the name of a snapshot, found " + quote_text(target));
    revision = target;
  }
  const fs::path snapshot = repository / "snapshots" / revision;
  if (is_model_folder(snapshot)) return snapshot;
  return make_error(ErrorCode::not_found, snapshot.string());
}

}  // namespace

Result<fs::path> find_base(const BaseRequest& request) {
  if (request.given) {
    if (is_model_folder(*request.given)) return *request.given;
    return make_error(ErrorCode::not_found,
                      request.given->string() + ": expected the folder of the base model, found no config.json in it");
  }
  if (request.name.empty()) {
    return make_error(ErrorCode::not_found, request.adapter_folder.string() + ": the checkpoint does not name its base model: give --base");
  }
  std::string tried;
  for (const auto& candidate : local_candidates(request)) {
    if (is_model_folder(candidate)) return candidate.lexically_normal();
    tried += (tried.empty() ? "" : ", ") + candidate.lexically_normal().string();
  }
  if (const auto cache = cache_folder(); cache && !fs::path(request.name).is_absolute()) {
    auto snapshot = cached_snapshot(*cache, request);
    if (snapshot.ok() || snapshot.error().code != ErrorCode::not_found) return snapshot;
    tried += ", " + snapshot.error().message;
  }
  return make_error(ErrorCode::not_found, request.adapter_folder.string() + ": base model " + quote_text(request.name) +
                                              " not found; tried " + tried + ": give --base");
}

}  // namespace chorus::formats
