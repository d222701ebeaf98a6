// plugin.cpp -- all of the plugin as one unit: PyTorch's headers take many times longer to compile than what is ours, so they are
// read once. Only this file is compiled.
#include "collectives.cpp"
#include "compressor.cpp"
#include "group.cpp"
#include "lane.cpp"
#include "meeting.cpp"
#include "memory.cpp"
#include "messages.cpp"
#include "module.cpp"
#include "movement.cpp"
#include "reduction.cpp"
#include "tensors.cpp"
#include "work.cpp"
