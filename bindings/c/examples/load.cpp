// The same as load.c, with objects that free themselves.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "weighbridge.h"

namespace {

template <typename T, void (*Free)(T *)> struct Freed {
    void operator()(T *object) const { Free(object); }
};
using Checkpoint = std::unique_ptr<wb_checkpoint, Freed<wb_checkpoint, wb_checkpoint_free>>;
using Plan = std::unique_ptr<wb_plan, Freed<wb_plan, wb_plan_free>>;
using Loaded = std::unique_ptr<wb_loaded, Freed<wb_loaded, wb_loaded_free>>;

// An error of the library as an exception.
class Error : public std::runtime_error {
  public:
    explicit Error(wb_error *error) : std::runtime_error(wb_error_message(error)), kind(wb_error_get_kind(error))
    {
        for (std::size_t i = 0; i < wb_error_problem_count(error); i++) {
            problems.emplace_back(wb_error_problem(error, i));
            for (std::size_t j = 0; wb_error_hint(error, i, j) != nullptr; j++)
                problems.emplace_back(std::string("hint: ") + wb_error_hint(error, i, j));
        }
        wb_error_free(error);
    }
    wb_error_kind kind;
    std::vector<std::string> problems;
};

template <typename T, typename F> T made(F make)
{
    wb_error *error = nullptr;
    T object(make(&error));
    if (object == nullptr)
        throw Error(error);
    return object;
}

bool place(void *context, const wb_place *asked, void **planes)
{
    auto &memory = *static_cast<std::vector<std::vector<float>> *>(context);
    if (asked->planes != 1 || asked->index >= memory.size())
        return false;
    memory[asked->index].resize(asked->plane_bytes[0] / sizeof(float));
    planes[0] = memory[asked->index].data();
    return true;
}

bool never(void *, std::uint64_t, std::uint64_t)
{
    return false;
}

void run(const char *path)
{
    auto checkpoint = made<Checkpoint>([&](wb_error **error) { return wb_open(path, error); });
    wb_entry entry;
    if (wb_checkpoint_entry(checkpoint.get(), 0, &entry))
        std::printf("%s, %zu tensors, the first is %s %s\n", wb_checkpoint_format(checkpoint.get()),
                    wb_checkpoint_count(checkpoint.get()), entry.name, entry.scheme);
    try {
        wb_plan_options wrong = {};
        wrong.size = sizeof wrong;
        wrong.layout = "modules";
        wrong.tp = 7;
        made<Plan>([&](wb_error **error) { return wb_plan_new(checkpoint.get(), &wrong, error); });
    } catch (const Error &error) {
        std::printf("kind %d\n", static_cast<int>(error.kind));
        for (const auto &problem : error.problems)
            std::printf("  %s\n", problem.c_str());
    }

    const char *rules[] = {"*=f32"};
    wb_plan_options options = {};
    options.size = sizeof options;
    options.encode = rules;
    options.encode_count = 1;
    auto plan = made<Plan>([&](wb_error **error) { return wb_plan_new(checkpoint.get(), &options, error); });
    wb_load_options load = {};
    load.size = sizeof load;
    load.owned = true;
    wb_needs needs;
    wb_error *error = nullptr;
    if (!wb_plan_needs(plan.get(), &load, &needs, &error))
        throw Error(error);
    std::printf("%zu parameters, %llu bytes of memory\n", wb_plan_count(plan.get()),
                static_cast<unsigned long long>(needs.owned));

    checkpoint.reset();
    auto loaded = made<Loaded>([&](wb_error **e) { return wb_load(plan.get(), nullptr, e); });
    std::vector<std::vector<float>> memory(wb_plan_count(plan.get()));
    if (!wb_load_into(plan.get(), place, &memory, nullptr, &error))
        throw Error(error);
    double sum = 0;
    for (std::size_t i = 0; i < memory.size(); i++) {
        wb_param param;
        wb_plane plane;
        if (!wb_plan_param(plan.get(), i, &param) || !wb_loaded_plane(loaded.get(), param.name, 0, &plane))
            throw std::runtime_error("a parameter is not there");
        if (param.tied_to != SIZE_MAX)
            continue;
        if (plane.bytes != memory[i].size() * sizeof(float) || std::memcmp(plane.data, memory[i].data(), plane.bytes) != 0)
            throw std::runtime_error(std::string(param.name) + " differs");
        for (float x : memory[i])
            sum += x;
    }
    std::printf("sum %.3f\n", sum);

    load.progress = never;
    try {
        made<Loaded>([&](wb_error **e) { return wb_load(plan.get(), &load, e); });
    } catch (const Error &ended) {
        std::printf("ended: %s\n", ended.kind == WB_ERROR_CANCELLED ? "by this program" : ended.what());
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2 || wb_abi_version() != WB_ABI_VERSION)
        return EXIT_FAILURE;
    try {
        run(argv[1]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
