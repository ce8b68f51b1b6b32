// What llama.cpp says, in full precision and with ids: six small commands over its public C API.
//
//   llama_oracle logits MODEL.gguf OUT.bin ID…      logits of every position, raw f32 little-endian
//   llama_oracle lora MODEL.gguf ADAPTER.gguf OUT.bin ID…   the same with a LoRA adapter
//   llama_oracle states MODEL.gguf OUT.bin ID…      the last hidden states of an encoder (BERT), the same way
//   llama_oracle vectors MODEL.gguf OUT.bin TEXT…   the vector of each text, pooled as the file says and not normalised, or its
//       scores, the same way; the ids of each text as JSON on stdout
//   llama_oracle greedy MODEL.gguf STEPS TOP PROMPT CACHE
//       continues PROMPT at temperature 0; one JSON object on stdout: the ids of the prompt, for each step the
//       TOP best as [id, logit, log-probability], and the text
//   llama_oracle forced MODEL.gguf FIRST TOP CACHE ID…
//       the same for the given ids, from the position that predicts the one numbered FIRST
//
// CACHE `f16` is how llama.cpp's own programs run (f16 keys and values, flash attention where it can); `f32`
// keeps keys and values in f32 and attends without flash attention, as `logits` does.
//
// Build against a shared build of llama.cpp (LC its source, B its build folder):
//   g++ -O2 -std=c++17 -I$LC/include -I$LC/ggml/include llama_oracle.cpp -o llama_oracle
//     -L$B/bin -lllama -lggml -lggml-base -Wl,-rpath,$B/bin
// or a static one:
//   g++ -O2 -std=c++17 -I$LC/include -I$LC/ggml/include llama_oracle.cpp -o llama_oracle
//     $B/src/libllama.a $B/ggml/src/libggml.a $B/ggml/src/libggml-cpu.a $B/ggml/src/libggml-base.a
//     -fopenmp -lpthread -ldl -lm

#include "llama.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

[[noreturn]] static void fail(const char * what) {
    fprintf(stderr, "llama_oracle: %s\n", what);
    exit(1);
}

static llama_model * load(const char * path) {
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    llama_model * model = llama_model_load_from_file(path, params);
    if (!model) { fail("cannot load the model"); }
    return model;
}

static llama_context * context(llama_model * model, uint32_t n_ctx, ggml_type kv, llama_flash_attn_type flash,
                               bool states = false, bool pooled = false) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_batch = n_ctx;
    params.n_ubatch = n_ctx;
    params.n_threads = params.n_threads_batch = 2;
    params.type_k = params.type_v = kv;
    params.flash_attn_type = flash;
    params.swa_full = true;
    params.embeddings = states;
    params.pooling_type = states && !pooled ? LLAMA_POOLING_TYPE_NONE : LLAMA_POOLING_TYPE_UNSPECIFIED;
    llama_context * ctx = llama_init_from_model(model, params);
    if (!ctx) { fail("cannot make a context"); }
    return ctx;
}

// Decodes `ids` from position `start`; every position gives logits if `all`, else the last one alone.
static void decode(llama_context * ctx, const std::vector<llama_token> & ids, int start, bool all) {
    llama_batch batch = llama_batch_init((int) ids.size(), 0, 1);
    for (size_t i = 0; i < ids.size(); i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = start + (int) i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = all || i + 1 == ids.size();
    }
    batch.n_tokens = (int) ids.size();
    if (llama_decode(ctx, batch) != 0) { fail("decode failed"); }
    llama_batch_free(batch);
}

static std::string quoted(const std::string & text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') { out += '\\'; out += (char) c; }
        else if (c == '\n') { out += "\\n"; }
        else if (c < 0x20) { char hex[8]; snprintf(hex, sizeof hex, "\\u%04x", c); out += hex; }
        else { out += (char) c; }
    }
    return out + "\"";
}

// Logits, or with `states` the last hidden states, of every position.
static int logits(int argc, char ** argv, bool states, const char * lora = nullptr) {
    if (argc < 5) { fail("logits MODEL OUT ID…"); }
    llama_model * model = load(argv[2]);
    std::vector<llama_token> ids;
    for (int i = 4; i < argc; i++) { ids.push_back(atoi(argv[i])); }
    llama_context * ctx = context(model, std::max<uint32_t>(256, ids.size()), GGML_TYPE_F32,
                                  LLAMA_FLASH_ATTN_TYPE_DISABLED, states);
    if (lora) {
        llama_adapter_lora * adapter = llama_adapter_lora_init(model, lora);
        float scale = 1.0f;
        if (!adapter || llama_set_adapters_lora(ctx, &adapter, 1, &scale) != 0) { fail("cannot load the adapter"); }
    }
    decode(ctx, ids, 0, true);
    const int width = states ? llama_model_n_embd(model) : llama_vocab_n_tokens(llama_model_get_vocab(model));
    FILE * out = fopen(argv[3], "wb");
    if (!out) { fail("cannot write"); }
    for (size_t i = 0; i < ids.size(); i++) {
        const float * row = states ? llama_get_embeddings_ith(ctx, (int) i) : llama_get_logits_ith(ctx, (int) i);
        fwrite(row, sizeof(float), width, out);
    }
    fclose(out);
    return 0;
}

static int vectors(int argc, char ** argv) {
    if (argc < 5) { fail("vectors MODEL OUT TEXT…"); }
    llama_model * model = load(argv[2]);
    const llama_vocab * vocab = llama_model_get_vocab(model);
    llama_context * ctx = context(model, 512, GGML_TYPE_F32, LLAMA_FLASH_ATTN_TYPE_DISABLED, true, true);
    const bool scores = llama_pooling_type(ctx) == LLAMA_POOLING_TYPE_RANK;
    const int width = scores ? (int) llama_model_n_cls_out(model) : llama_model_n_embd(model);
    FILE * out = fopen(argv[3], "wb");
    if (!out) { fail("cannot write"); }
    printf("[");
    for (int i = 4; i < argc; i++) {
        std::vector<llama_token> ids(strlen(argv[i]) + 8);
        const int count = llama_tokenize(vocab, argv[i], (int) strlen(argv[i]), ids.data(), (int) ids.size(), true, true);
        if (count <= 0) { fail("tokenize failed"); }
        ids.resize(count);
        printf("%s[", i > 4 ? ", " : "");
        for (int j = 0; j < count; j++) { printf("%s%d", j ? ", " : "", ids[j]); }
        printf("]");
        decode(ctx, ids, 0, true);
        const float * row = llama_get_embeddings_seq(ctx, 0);
        if (!row) { fail("the file does not say how to pool"); }
        fwrite(row, sizeof(float), width, out);
    }
    printf("]\n");
    fclose(out);
    return 0;
}

// Prints the `top` best of the row of logits and returns the first; ties go to the lower id.
static int print_best(const float * scores, int n_vocab, int top) {
    std::vector<int> order(n_vocab);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + top, order.end(),
                      [&](int a, int b) { return scores[a] > scores[b] || (scores[a] == scores[b] && a < b); });
    double sum = 0;
    for (int i = 0; i < n_vocab; i++) { sum += std::exp((double) scores[i] - scores[order[0]]); }
    const double log_sum = std::log(sum) + scores[order[0]];
    printf("[");
    for (int i = 0; i < top; i++) {
        printf("%s[%d, %.4f, %.4f]", i ? ", " : "", order[i], scores[order[i]], scores[order[i]] - log_sum);
    }
    printf("]");
    return order[0];
}

static llama_context * cached(llama_model * model, const char * cache) {
    const bool wide = !strcmp(cache, "f32");
    if (!wide && strcmp(cache, "f16") != 0) { fail("CACHE is f16 or f32"); }
    return context(model, 512, wide ? GGML_TYPE_F32 : GGML_TYPE_F16,
                   wide ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_AUTO);
}

static int greedy(int argc, char ** argv) {
    if (argc != 7) { fail("greedy MODEL STEPS TOP PROMPT CACHE"); }
    const int steps = atoi(argv[3]), top = atoi(argv[4]);
    const std::string prompt = argv[5];
    llama_model * model = load(argv[2]);
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const int n_vocab = llama_vocab_n_tokens(vocab);
    std::vector<llama_token> next(prompt.size() + 8);
    const int count = llama_tokenize(vocab, prompt.data(), (int) prompt.size(), next.data(), (int) next.size(),
                                     true, true);
    if (count < 0) { fail("tokenize failed"); }
    next.resize(count);
    llama_context * ctx = cached(model, argv[6]);
    printf("{\"prompt_ids\": [");
    for (int i = 0; i < count; i++) { printf("%s%d", i ? ", " : "", next[i]); }
    printf("], \"top\": [");
    std::string text;
    int position = 0;
    for (int step = 0; step < steps; step++) {
        decode(ctx, next, position, false);
        position += (int) next.size();
        if (step) { printf(", "); }
        const int id = print_best(llama_get_logits_ith(ctx, -1), n_vocab, top);
        char piece[256];
        const int length = llama_token_to_piece(vocab, id, piece, sizeof piece, 0, false);
        if (length > 0) { text.append(piece, length); }
        next = {id};
        if (llama_vocab_is_eog(vocab, id)) { break; }
    }
    printf("], \"text\": %s}\n", quoted(text).c_str());
    return 0;
}

static int forced(int argc, char ** argv) {
    if (argc < 7) { fail("forced MODEL FIRST TOP CACHE ID…"); }
    const int first = atoi(argv[3]), top = atoi(argv[4]);
    llama_model * model = load(argv[2]);
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<llama_token> ids;
    for (int i = 6; i < argc; i++) { ids.push_back(atoi(argv[i])); }
    if (first < 1 || first > (int) ids.size()) { fail("FIRST is out of range"); }
    llama_context * ctx = cached(model, argv[5]);
    ids.pop_back(); // it predicts nothing that is asked
    decode(ctx, ids, 0, true);
    printf("{\"top\": [");
    for (int i = first - 1; i < (int) ids.size(); i++) {
        if (i >= first) { printf(", "); }
        print_best(llama_get_logits_ith(ctx, i), n_vocab, top);
    }
    printf("]}\n");
    return 0;
}

int main(int argc, char ** argv) {
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) { fputs(text, stderr); }
    }, nullptr);
    llama_backend_init();
    if (argc > 1 && !strcmp(argv[1], "logits")) { return logits(argc, argv, false); }
    if (argc > 3 && !strcmp(argv[1], "lora")) {
        std::vector<char *> others(argv, argv + argc);
        others.erase(others.begin() + 3);
        return logits(argc - 1, others.data(), false, argv[3]);
    }
    if (argc > 1 && !strcmp(argv[1], "states")) { return logits(argc, argv, true); }
    if (argc > 1 && !strcmp(argv[1], "vectors")) { return vectors(argc, argv); }
    if (argc > 1 && !strcmp(argv[1], "greedy")) { return greedy(argc, argv); }
    if (argc > 1 && !strcmp(argv[1], "forced")) { return forced(argc, argv); }
    fail("logits, lora, states, vectors, greedy or forced");
}
