// A file whose headers take seconds to compile.
#include <iostream>
#include <regex>

#include "helper.h"

int main(int count, char** words) {
    std::regex pattern("[a-z]+(x|y)*");
    std::cout << std::regex_match(words[0], pattern) << scaled(count) << "\n";
}
