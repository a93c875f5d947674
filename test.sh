#!/usr/bin/env bash
# Runs the tests (docs/testing.md). Installs what is missing first (Debian 12 or newer; as root or through sudo).
#   ./test.sh             static asan unit shaders webgpu verify
#   ./test.sh all         these, then what CI runs besides: tsan benchmarks fuzz
#   ./test.sh STAGE...    only these
# Environment: CHORUS_NO_INSTALL=1 installs nothing. CHORUS_FUZZ_SECONDS: per fuzz target (60 with CI=true, else 10).
# Every step says what it ran. A missing program, adapter, fixture or model is a failure, as is a test that skips itself.
# The last line is `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

most_stages=(static asan unit shaders webgpu verify)
all_stages=("${most_stages[@]}" tsan benchmarks fuzz)
[ $# -gt 0 ] || set -- "${most_stages[@]}"
[ "$*" != all ] || set -- "${all_stages[@]}"
for stage in "$@"; do
  [[ " ${all_stages[*]} " == *" $stage "* ]] || { echo "test.sh: unknown stage $stage (known: ${all_stages[*]})" >&2; exit 2; }
done
wants() { [[ " ${stages[*]} " == *" $1 "* ]]; }
stages=("$@")

fuzz_seconds=${CHORUS_FUZZ_SECONDS:-$([ "${CI:-}" = true ] && echo 60 || echo 10)}
export UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1
started=$SECONDS
passed=0
failed=0
failures=()
logs=build/test-logs
shards=$(nproc)
[ "$shards" -le 4 ] || shards=4
# Sanitizer builds are slow: of the cases that stage `unit` runs with 1, 2 and 3 threads they run those with 3.
only_most_threads=--gtest_filter=-*_1_threads:*_2_threads
mkdir -p "$logs"

# The sanitizers of older compilers do not know the address layout of newer kernels; without randomisation it does not matter.
fixed_layout=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_layout=(setarch "$(uname -m)" -R); fi

note_failure() { # NAME LOG
  failures+=("$1")
  echo "FAILED  $1 (whole output: $2)"
  { grep -A 6 -E ': Failure$|^FAILED|Sanitizer|runtime error' "$2" | head -n 60; echo ...; tail -n 20 "$2"; } | sed 's/^/    /'
}

# Programs get a time limit; functions of this script limit what they run.
limited() {
  if [ "$(type -t "$1")" = function ]; then "$@"; else timeout --kill-after=10 1500 "$@"; fi
}
log_of() { echo "$logs/$(echo "$1" | tr -c 'A-Za-z0-9\n' '-').log"; }

# step NAME COMMAND...: one pass or failure.
step() {
  local name=$1 log begin=$SECONDS
  log=$(log_of "$1")
  shift
  if limited "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "passed  $name ($((SECONDS - begin)) s)"
  else
    failed=$((failed + 1))
    note_failure "$name" "$log"
    return 1
  fi
}

# job NAME COMMAND...: a step that runs beside others, one a core; end_jobs waits for all and reports them in order.
jobs_at_once=$(nproc)
job_names=()
job() {
  local name=$1 log
  log=$(log_of "$1")
  shift
  while [ "$(jobs -pr | wc -l)" -ge "$jobs_at_once" ]; do wait -n; done
  job_names+=("$name")
  rm -f "$log.end"
  {
    local begin=$SECONDS status=0
    limited "$@" >"$log" 2>&1 || status=$?
    echo "$status $((SECONDS - begin))" >"$log.end"
  } &
}
end_jobs() {
  local name log status seconds
  wait
  for name in "${job_names[@]}"; do
    log=$(log_of "$name")
    read -r status seconds <"$log.end" || status=lost
    if [ "$status" = 0 ]; then
      passed=$((passed + 1))
      echo "passed  $name ($seconds s)"
    else
      failed=$((failed + 1))
      note_failure "$name" "$log"
    fi
  done
  job_names=()
}

# The sum of the numbers in GoogleTest's closing lines that start with `[  WORD  ]`.
count_in() { # WORD LOG
  sed -n "s/^\[ *$1 *\] \([0-9]*\) tests\?[.,].*/\1/p" "$2" | awk '{sum += $1} END {print sum + 0}'
}

# report_tests NAME LOG BEGIN STATUS: counts GoogleTest's tests in LOG.*. No test, a skipped test and an abnormal end are failures.
report_tests() {
  local name=$1 log=$2 begin=$3 status=$4 good bad
  cat "$log".* >"$log"
  good=$(count_in PASSED "$log")
  bad=$(($(count_in FAILED "$log") + $(count_in SKIPPED "$log")))
  if [ "$bad" = 0 ] && { [ "$status" != 0 ] || [ "$good" = 0 ]; }; then bad=1; fi
  passed=$((passed + good))
  failed=$((failed + bad))
  if [ "$bad" = 0 ]; then
    echo "passed  $name: $good tests ($((SECONDS - begin)) s)"
  else
    note_failure "$name" "$log"
    return 1
  fi
}

# tests NAME PROGRAM [ARGUMENT...]: GoogleTest's tests, which run in one process a core.
tests() {
  local name=$1 log begin=$SECONDS shard pid status=0 pids=()
  log=$(log_of "$1")
  shift
  rm -f "$log".*
  for ((shard = 0; shard < shards; shard++)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard limited "$@" >"$log.$shard" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  report_tests "$name" "$log" "$begin" "$status"
}

# tests_by_suite NAME ADAPTER PROGRAM: GoogleTest's tests on an adapter, every suite (of one with parameters every case) in a process of its own, one
# a core at a time. Compiling pipelines takes most of the time and the driver keeps them on disk: tests of the
# same ones should run one after the other, and those that need most of them, which the order of names puts first, before the others.
# A process that a signal ends counts as one that failed: xargs would not start the others.
tests_by_suite() {
  local name=$1 adapter=$2 program=$3 log begin=$SECONDS status=0
  log=$(log_of "$1")
  rm -f "$log".*
  "$program" --gtest_list_tests | awk '/^[^ ]/ {suite = $1} /^ / {print suite ~ "/" ? suite $1 : suite "*"}' | sort -u | cat -n |
    on "$adapter" xargs -r -L 1 -P "$shards" sh -c '"$0" --gtest_filter="$3" >"$1.$2" 2>&1 || exit 1' "$program" "$log" || status=$?
  report_tests "$name" "$log" "$begin" "$status"
}

declare -A built=()
# build PRESET TARGET...: once per preset and set of targets.
build() {
  local preset=$1
  [ -z "${built[$*]:-}" ] || return "${built[$*]}"
  step "configure $preset" cmake --preset "$preset" && step "build $*" cmake --build --preset "$preset" --target "${@:2}"
  built[$*]=$?
  return "${built[$*]}"
}

check_format() {
  local tool=clang-format
  command -v clang-format-14 >/dev/null && tool=clang-format-14
  git ls-files -z --cached --others --exclude-standard -- 'src/*.h' 'src/*.cpp' 'include/*.h' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' 'fuzz/*.cpp' 'examples/*.cpp' |
    xargs -0 "$tool" --dry-run -Werror
}

# tint of the pinned Dawn runs through the loader of the prefix; on a system with Dawn it is the system's.
compile_shaders() {
  local tint=(tint) folder=build/shaders libraries text count=0 bad=0
  rm -rf "$folder"
  python3 tools/embed_wgsl.py src/kernels "$folder/shaders.cpp" --dir "$folder/wgsl" || return 1
  if [ -x build/dawn-tools/usr/bin/tint ]; then
    libraries=$(dirname "$(ls build/dawn/usr/lib/*/libwebgpu_dawn.so | head -n 1)")
    tint=("$(ls "$libraries"/ld-linux-*.so.* | head -n 1)" --library-path "$libraries" build/dawn-tools/usr/bin/tint)
  fi
  for text in "$folder"/wgsl/*.wgsl; do
    count=$((count + 1))
    if ! "${tint[@]}" --format spirv -o "$folder/module.spv" "$text"; then
      echo "does not compile: $text"
      bad=$((bad + 1))
    fi
  done
  echo "$count shader texts, $bad do not compile"
  [ "$count" -gt 1 ] && [ "$bad" = 0 ]
}

# fuzz_one TARGET: a run from its seeds; new finds go into a scratch corpus.
fuzz_one() {
  local target=$1 seeds="fuzz/corpus/${1%_fuzz}" scratch="build/asan/corpus/$1"
  [ -n "$(ls "$seeds" 2>/dev/null)" ] || { echo "no seeds in $seeds"; return 1; }
  mkdir -p "$scratch"
  limited "${fixed_layout[@]}" "build/asan/fuzz/$target" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=2048 -max_len=262144 -print_final_stats=1 \
    -artifact_prefix="$logs/" "$scratch" "$seeds"
}

declare -A driver=()
find_adapters() {
  driver[lavapipe]=$(ls /usr/share/vulkan/icd.d/lvp_icd*.json 2>/dev/null | head -n 1)
  driver[swiftshader]=$PWD/build/swiftshader/vk_swiftshader_icd.json
}
# on ADAPTER COMMAND...: runs it with only that software adapter visible.
on() {
  local icd=${driver[$1]:-}
  [ -f "$icd" ] || { echo "no Vulkan driver file for $1: '$icd'" >&2; return 1; }
  shift
  VK_DRIVER_FILES=$icd VK_ICD_FILENAMES=$icd limited "$@"
}

# --- stages ---

stage_static() {
  step "no machine paths or registry addresses" tools/check_text
  step "include directions" tools/check_layers && cat "$(log_of "include directions")"
  step "formatting" check_format
}

stage_asan() {
  build asan chorus_tests chorus chorus_fuzz_targets || return 0
  tests "unit tests, ASan and UBSan" "${fixed_layout[@]}" build/asan/tests/chorus_tests "$only_most_threads"
  step "program on hostile input, ASan and UBSan" python3 tests/command_line.py build/asan/chorus
}

stage_tsan() {
  build tsan chorus_thread_tests || return 0
  tests "threads, TSan" "${fixed_layout[@]}" build/tsan/tests/chorus_thread_tests "$only_most_threads"
}

build_dev() { build dev chorus chorus_tests chorus_webgpu_tests; }

stage_unit() {
  build_dev || return 0
  tests "unit tests" build/dev/tests/chorus_tests
}

stage_shaders() {
  step "shader variants to SPIR-V" compile_shaders
}

stage_webgpu() {
  build_dev || return 0
  # On SwiftShader the self-test runs every known answer, in one process: each process compiles its own pipelines, which takes it minutes.
  local known_answers='All/OperationsWebgpu.MatchesItsReference/*'
  # SwiftShader also computes slowly: tests of what the host does above the kernels run on lavapipe.
  local above_kernels=LinearLimits.*:NarrowLimitsWebgpu.*:ModelLoss.BeforeThe*:ModelLoss.WithWork*:$(
    printf 'LanguageOnWebgpu.%s*:' Splits Budgets Continuing)$(printf 'ModelOnWebgpu.%s*:' Questions Small Two Long)
  local program=build/dev/tests/chorus_webgpu_tests
  job "self-test on swiftshader" on swiftshader build/dev/chorus devices --self-test --full --device webgpu
  tests_by_suite "webgpu tests on lavapipe" lavapipe "$program"
  tests "webgpu tests on swiftshader" on swiftshader "$program" --gtest_filter="-$known_answers:$above_kernels"
  end_jobs
}

stage_verify() {
  build_dev || return 0
  local program=build/dev/chorus adapter dtype fixture
  local mini=(models/kev-mini --base models/kev-mini-base --golden tests/data/kev-mini.golden.jsonl)
  local moe=(models/moe-mini --golden tests/data/moe-mini.golden.jsonl)
  for dtype in f32 f16 bf16; do
    job "kev-mini on cpu, $dtype" "$program" verify "${mini[@]}" --device cpu --dtype "$dtype"
  done
  for fixture in tests/data/*/golden.safetensors; do
    fixture=$(dirname "$fixture")
    job "$(basename "$fixture") on cpu" "$program" verify "$fixture" --device cpu
  done
  job "moe-mini on cpu" "$program" verify "${moe[@]}" --device cpu
  # On SwiftShader kev-mini takes minutes; the fixture, of the same layers, runs there. On lavapipe the types share most pipelines: the first
  # one compiles them while others run, so that its neighbours come last.
  job "kev-mini on lavapipe, f32" on lavapipe "$program" verify "${mini[@]}" --device webgpu --dtype f32
  for adapter in lavapipe swiftshader; do
    for fixture in tests/data/*/golden.safetensors; do
      fixture=$(dirname "$fixture")
      # lavapipe runs every family; SwiftShader one of each kind of attention.
      case $adapter-$(basename "$fixture") in swiftshader-qwen3_5*_text | swiftshader-deepseek_v32 | swiftshader-gpt_oss | lavapipe-*) ;; *) continue ;; esac
      job "$(basename "$fixture") on $adapter" on "$adapter" "$program" verify "$fixture" --device webgpu
    done
  done
  for dtype in f16 bf16; do
    job "kev-mini on lavapipe, $dtype" on lavapipe "$program" verify "${mini[@]}" --device webgpu --dtype "$dtype"
  done
  job "moe-mini on lavapipe" on lavapipe "$program" verify "${moe[@]}" --device webgpu
  end_jobs
}

stage_benchmarks() { build dev chorus_benchmarks; }

stage_fuzz() {
  build asan chorus_tests chorus chorus_fuzz_targets || return 0
  local source
  for source in fuzz/*_fuzz.cpp; do
    [ -f "$source" ] || { step "fuzz targets exist" false; return 0; }
    source=$(basename "$source" .cpp)
    job "fuzz $source, $fuzz_seconds s" fuzz_one "$source"
  done
  end_jobs
}

if [ -z "${CHORUS_NO_INSTALL:-}" ]; then step "prerequisites" tools/install_prerequisites; fi
if wants unit || wants shaders || wants webgpu || wants verify || wants benchmarks; then step "Dawn" tools/fetch_dawn; fi
if wants shaders; then step "shader compiler" tools/fetch_dawn --tools; fi
if wants webgpu || wants verify; then step "SwiftShader" tools/fetch_swiftshader; fi
find_adapters
for stage in "${all_stages[@]}"; do
  if wants "$stage"; then
    echo "--- $stage"
    "stage_$stage"
  fi
done

echo
for name in "${failures[@]}"; do echo "failed: $name"; done
echo "$(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
