#include "models/families/read_blueprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "formats/test_tools.h"
#include "models/blueprint_tensors.h"

namespace chorus::models {
namespace {

using formats::testing::expect_error;
using formats::testing::replaced;

std::string fixture_config(const std::string& name) {
  return formats::testing::read_all(std::filesystem::path(CHORUS_TEST_DATA) / name / "config.json");
}

Blueprint must_read(const std::string& json, const TensorIsThere& is_there = {}) {
  auto blueprint = read_blueprint(json, is_there);
  if (blueprint.ok()) return std::move(blueprint).value();
  ADD_FAILURE() << blueprint.error().to_line();
  return {};
}

const RopeSpec& rope_of(const Blueprint& blueprint) {
  const auto& mixer = blueprint.layers.at(0).mixer;
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&mixer)) return latent->rope;
  return std::get<AttentionSpec>(mixer).rope;
}

// A frequency of the reference (transformers 5.17), whose float32 arithmetic rounds a few times.
void expect_frequencies(const RopeSpec& rope, const std::vector<std::pair<size_t, double>>& expected) {
  for (const auto& [index, value] : expected) {
    ASSERT_LT(index, rope.inverse_frequencies.size());
    EXPECT_NEAR(rope.inverse_frequencies[index], value, value * 1e-6) << index;
  }
}

// Sizes of hub models; keys that do not matter here are left out.
std::string llama_config(const std::string& more) {
  return R"({"model_type":"llama","hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":32,"num_key_value_heads":8,)"
         R"("intermediate_size":14336,"vocab_size":128256,"max_position_embeddings":131072,"rms_norm_eps":1e-05,"hidden_act":"silu")" +
         more + "}";
}
std::string deepseek_config(const std::string& type, const std::string& more) {
  return R"({"model_type":")" + type +
         R"(","hidden_size":7168,"num_hidden_layers":5,"num_attention_heads":128,"vocab_size":129280,"intermediate_size":18432,)"
         R"("moe_intermediate_size":2048,"n_routed_experts":256,"n_shared_experts":1,"num_experts_per_tok":8,"n_group":8,"topk_group":4,)"
         R"("routed_scaling_factor":2.5,"scoring_func":"sigmoid","topk_method":"noaux_tc","norm_topk_prob":true,"first_k_dense_replace":3,)"
         R"("moe_layer_freq":1,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,)"
         R"("max_position_embeddings":163840,"rope_theta":10000,"eos_token_id":1)" +
         more + "}";
}
const std::string kDeepseekYarn =
    R"(,"rope_scaling":{"type":"yarn","factor":40,"beta_fast":32,"beta_slow":1,"mscale":1.0,"mscale_all_dim":1.0,)"
    R"("original_max_position_embeddings":4096})";

TEST(ReadBlueprint, FixturesOfEveryFamily) {
  for (const char* name : {"deepseek_v3", "deepseek_v32", "glm4_moe", "glm_moe_dsa", "gpt_oss", "llama", "mixtral", "olmoe", "qwen3",
                           "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe"}) {
    const Blueprint blueprint = must_read(fixture_config(name));
    EXPECT_EQ(blueprint.model_type, name);
    EXPECT_EQ(blueprint.hidden, 64u) << name;
    EXPECT_EQ(blueprint.vocabulary, 512u) << name;
    EXPECT_EQ(blueprint.end_tokens, std::vector<uint32_t>{2}) << name;
    std::set<std::string> names;
    for (const NamedShape& tensor : resident_tensors(blueprint)) EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
  }
}

TEST(ReadBlueprint, OtherArchitecturesAreNamed) {
  expect_error(read_blueprint(R"({"model_type":"deepseek_v4"})"), "config.json: model_type: this program runs deepseek_v3, ");
  expect_error(read_blueprint(R"({"model_type":"deepseek_v4"})"), "found \"deepseek_v4\"");
  expect_error(read_blueprint(R"({"model_type":"kimi_linear"})"), "found \"kimi_linear\"");
  expect_error(read_blueprint(R"({"architectures":["LlamaForCausalLM"]})"), "model_type: missing");
  expect_error(read_blueprint("{"), "config.json");
  expect_error(read_blueprint("[1]"), "config.json");
  expect_error(read_blueprint(deepseek_config("deepseek_v3", R"(,"quantization_config":{"quant_method":"fp8"})")),
               "a quantised checkpoint");
  expect_error(read_blueprint(replaced(fixture_config("gpt_oss"), "{", R"({"quantization_config":{"quant_method":"gptq"},)")),
               "quant_method: this program runs \"mxfp4\", found \"gptq\"");
}

TEST(ReadBlueprint, RopeOfHubModels) {
  const Blueprint llama = must_read(llama_config(
      R"(,"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":8192})"));
  expect_frequencies(rope_of(llama), {{0, 1},
                                      {16, 0.03760603070259094},
                                      {21, 0.013490419834852219},
                                      {32, 0.0005248460220173001},
                                      {42, 2.2748929040972143e-05},
                                      {63, 3.068925877869333e-07}});
  expect_frequencies(rope_of(must_read(llama_config(R"(,"rope_scaling":{"type":"linear","factor":4.0})"))),
                     {{0, 0.25}, {16, 0.025}, {63, 2.8869548259535804e-05}});
  const Blueprint deepseek = must_read(deepseek_config("deepseek_v3", kDeepseekYarn));
  expect_frequencies(
      rope_of(deepseek),
      {{0, 1}, {8, 0.1}, {10, 0.05623412877321243}, {16, 0.005500000435858965}, {21, 0.0004149904125370085}, {31, 3.3338035336782923e-06}});
  EXPECT_EQ(rope_of(deepseek).factor, 1.0f);
  EXPECT_NEAR(std::get<LatentAttentionSpec>(deepseek.layers[0].mixer).scale, 0.1352337788608801, 1e-8);
  const std::string oss =
      replaced(fixture_config("gpt_oss"), "\"original_max_position_embeddings\": 64", "\"original_max_position_embeddings\": 4096");
  const Blueprint gpt_oss = must_read(replaced(oss, "\"head_dim\": 32", "\"head_dim\": 64"));
  expect_frequencies(rope_of(gpt_oss), {{0, 1},
                                        {8, 0.05081327259540558},
                                        {10, 0.019334999844431877},
                                        {16, 0.0004564839182421565},
                                        {21, 1.253256959898863e-05},
                                        {31, 3.023511396804679e-07}});
  EXPECT_NEAR(rope_of(gpt_oss).factor, 1.3465735902799727, 1e-7);
}

TEST(ReadBlueprint, RopeThatIsNotRun) {
  expect_error(
      read_blueprint(llama_config(R"(,"rope_scaling":{"rope_type":"dynamic","factor":2.0})")),
      "config.json: rope_scaling: rope_type: this program runs \"default\", \"linear\", \"llama3\" and \"yarn\", found \"dynamic\"");
  expect_error(read_blueprint(llama_config(R"(,"rope_theta":0)")), "rope_theta: expected 1.001 to");
  expect_error(read_blueprint(llama_config(R"(,"partial_rotary_factor":0.001)")), "gives 0 rotary columns");
  expect_error(
      read_blueprint(llama_config(
          R"(,"rope_scaling":{"rope_type":"llama3","low_freq_factor":4.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192})")),
      "expected less than high_freq_factor");
}

TEST(ReadBlueprint, DeepseekAndKimi) {
  const Blueprint kimi = must_read(deepseek_config("kimi_k2", kDeepseekYarn));
  ASSERT_EQ(kimi.layers.size(), 5u);
  EXPECT_EQ(std::get<DenseSpec>(kimi.layers[2].feed_forward).inner, 18432u);
  const auto& moe = std::get<MoeSpec>(kimi.layers[3].feed_forward);
  EXPECT_EQ(moe.groups, 8u);
  EXPECT_EQ(moe.groups_kept, 4u);
  EXPECT_EQ(moe.score, compute::RouterScore::sigmoid);
  EXPECT_EQ(moe.shared.inner, 2048u);
  EXPECT_EQ(moe.tensors.gate, "model.layers.3.mlp.experts.{E}.gate_proj.weight");
  EXPECT_EQ(expert_tensor_name(moe.tensors.gate, 17), "model.layers.3.mlp.experts.17.gate_proj.weight");
  EXPECT_TRUE(std::find(kimi.ignored_prefixes.begin(), kimi.ignored_prefixes.end(), "model.layers.5.") != kimi.ignored_prefixes.end());
  const std::string config = deepseek_config("deepseek_v3", "");
  expect_error(read_blueprint(replaced(config, "\"sigmoid\"", "\"softmax\"")),
               "scoring_func: this program runs \"sigmoid\", found \"softmax\"");
  expect_error(read_blueprint(replaced(config, "\"n_group\":8", "\"n_group\":7")), "n_group: 7 groups of 256 experts");
  expect_error(read_blueprint(replaced(config, "\"num_experts_per_tok\":8", "\"num_experts_per_tok\":257")),
               "expected 1 to 256, found 257");
  expect_error(read_blueprint(replaced(config, "\"num_experts_per_tok\":8", "\"num_experts_per_tok\":64")), "at most 32, found 64");
  expect_error(read_blueprint(replaced(config, "\"kv_lora_rank\":512", "\"kv_lora_rank\":500000")), "over the limit");
}

TEST(ReadBlueprint, SharedChoiceOfKeys) {
  const std::string types = "\"indexer_types\": [\n    \"full\",\n    \"full\",\n    \"full\",\n    \"full\"\n  ]";
  const std::string config = fixture_config("glm_moe_dsa");
  const auto shared = [](const Blueprint& blueprint) {
    std::string marks;
    for (const LayerSpec& layer : blueprint.layers) marks += std::get<LatentAttentionSpec>(layer.mixer).indexer->shared ? 'S' : 'F';
    return marks;
  };
  EXPECT_EQ(shared(must_read(config)), "FFFF");
  EXPECT_EQ(shared(must_read(replaced(config, types, R"("indexer_types":["full","shared","full","shared"])"))), "FSFS");
  EXPECT_EQ(shared(must_read(replaced(config, types, R"("index_topk_pattern":"FSSF")"))), "FSSF");
  EXPECT_EQ(shared(must_read(replaced(config, types, R"("index_topk_freq":2,"index_skip_topk_offset":2)"))), "FFSF");
  expect_error(read_blueprint(replaced(config, types, R"("index_topk_pattern":"SFFF")")), "no layer before it");
  expect_error(read_blueprint(replaced(config, types, R"("index_topk_pattern":"FFF")")), "expected one of each of the 4 layers, found 3");
  expect_error(read_blueprint(replaced(config, types, R"("index_topk_pattern":"FXFF")")), "found \"X\"");
}

TEST(ReadBlueprint, MultimodalWrapperAndNamesOfTheFiles) {
  const std::string inner = fixture_config("qwen3_5_moe_text");
  const std::string wrapped = R"({"model_type":"qwen3_5_moe","tie_word_embeddings":true,"vision_config":{},"text_config":)" +
                              replaced(inner, "\"tie_word_embeddings\": false,", "") + "}";
  const Blueprint hub = must_read(wrapped);
  EXPECT_EQ(hub.embedding, "model.language_model.embed_tokens.weight");
  EXPECT_EQ(hub.language_head, hub.embedding);
  const std::set<std::string> files = {"model.embed_tokens.weight", "model.layers.1.mlp.experts.gate_up_proj"};
  const Blueprint here = must_read(inner, [&](const std::string& name) { return files.contains(name); });
  EXPECT_EQ(here.embedding, "model.embed_tokens.weight");
  EXPECT_EQ(std::get<MoeSpec>(here.layers[0].feed_forward).tensors.form, ExpertTensors::Form::separate);
  EXPECT_EQ(std::get<MoeSpec>(here.layers[1].feed_forward).tensors.form, ExpertTensors::Form::fused);
  expect_error(read_blueprint(inner, [](const std::string&) { return false; }), "no tensor \"embed_tokens.weight\"");
  expect_error(read_blueprint(R"({"model_type":"qwen3_5_moe","text_config":{"model_type":"llama"}})"), "found \"llama\"");
}

TEST(ReadBlueprint, SettingsThatAreNotRun) {
  const auto refuse = [](const char* fixture, const char* from, const char* to, const char* part) {
    expect_error(read_blueprint(replaced(fixture_config(fixture), from, to)), part);
  };
  refuse("llama", "\"mlp_bias\": false", "\"mlp_bias\": true", "mlp_bias: this program runs false, found true");
  refuse("llama", "\"silu\"", "\"gelu\"", "hidden_act: this program runs \"silu\", found \"gelu\"");
  refuse("llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "no multiple of num_key_value_heads 3");
  refuse("llama", "\"hidden_size\": 64", "\"hidden_size\": 0", "hidden_size: expected 1 to");
  refuse("llama", "\"hidden_size\": 64", "\"hidden_size\": 1e3", "hidden_size");
  refuse("llama", "\"vocab_size\": 512", "\"vocab_size\": 99999999999", "vocab_size: expected 1 to");
  refuse("llama", "\"eos_token_id\": 2", "\"eos_token_id\": 512", "eos_token_id: expected at most 511, found 512");
  refuse("llama", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", "rms_norm_eps: expected");
  refuse("olmoe", "\"clip_qkv\": null", "\"clip_qkv\": 8.0", "clip_qkv");
  refuse("gpt_oss", "\"full_attention\"", "\"chunked_attention\"", "found \"chunked_attention\"");
  refuse("gpt_oss", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"silu\", \"swiglu_limit\": 10.0",
         "swiglu_limit: this program runs 7.0, found 10.0");
  refuse("qwen3_5_moe_text", "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3", "linear_conv_kernel_dim");
  refuse("deepseek_v32", "\"q_lora_rank\": 48", "\"q_lora_rank\": null", "q_lora_rank");
  refuse("mixtral", "\"num_local_experts\": 4", "\"num_local_experts\": 1", "num_experts_per_tok: expected 1 to 1, found 2");
}

}  // namespace
}  // namespace chorus::models
