#include "ground/support/Sha256.h"

#include <gtest/gtest.h>

using namespace lmc;

// Appendix B.1 of FIPS 180-2.
TEST(Sha256, HashesTheExampleOfItsStandard) {
  EXPECT_EQ(sha256("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// Test case 2 of RFC 4231.
TEST(Sha256, HmacOfTheExampleOfItsStandard) {
  EXPECT_EQ(hmacSha256("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}
