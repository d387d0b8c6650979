/* ChaCha8 against the published vectors (draft-strombergson-chacha-test-vectors, 256-bit keys). */
#include <stdio.h>
#include <string.h>
#include <unity.h>

#include "chacha.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static void from_hex(const char *hex, uint8_t *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned byte;
        TEST_ASSERT_EQUAL(1, sscanf(hex + 2 * i, "%2x", &byte));
        out[i] = (uint8_t)byte;
    }
}

static void matches(const char *key_hex, const char *nonce_hex, const char *first,
                    const char *second)
{
    uint8_t key[32], nonce[8], expected[128], got[128];
    struct chacha c;
    from_hex(key_hex, key, sizeof(key));
    from_hex(nonce_hex, nonce, sizeof(nonce));
    from_hex(first, expected, 64);
    from_hex(second, expected + 64, 64);
    chacha_init(&c, key, nonce);
    chacha_bytes(&c, got, sizeof(got));
    TEST_ASSERT_EQUAL_HEX8_ARRAY(expected, got, sizeof(got));
}

#define ZERO32 "0000000000000000000000000000000000000000000000000000000000000000"

static void all_zero(void)
{
    matches(ZERO32, "0000000000000000",
            "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e"
            "984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42",
            "d2aefa0deaa5c151bf0adb6c01f2a5adc0fd581259f9a2aadcf20f8fd566a26b"
            "5032ec38bbc5da98ee0c6f568b872a65a08abf251deb21bb4b56e5d8821e68aa");
}

static void one_bit_in_the_key(void)
{
    matches("0100000000000000000000000000000000000000000000000000000000000000", "0000000000000000",
            "cf5ee9a0494aa9613e05d5ed725b804b12f4a465ee635acc3a311de8740489ea"
            "289d04f43c7518db56eb4433e498a1238cd8464d3763ddbb9222ee3bd8fae3c8",
            "b4355a7d93dd8867089ee643558b95754efa2bd1a8a1e2d75bcdb32015542638"
            "291941feb49965587c4fdfe219cf0ec132a6cd4dc067392e67982fe53278c0b4");
}

static void one_bit_in_the_nonce(void)
{
    matches(ZERO32, "0100000000000000",
            "2b8f4bb3798306ca5130d47c4f8d4ed13aa0edccc1be6942090faeeca0d7599b"
            "7ff0fe616bb25aa0153ad6fdc88b954903c22426d478b97b22b8f9b1db00cf06",
            "470bdffbc488a8b7c701ebf4061d75c5969186497c95367809afa80bd843b040"
            "a79abc6e73a91757f1db73c8eacfa543b38f289d065ab2f3032d377b8c37fe46");
}

static void all_bits(void)
{
    matches("ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "ffffffffffffffff",
            "e163bbf8c9a739d18925ee8362dad2cdc973df05225afb2aa26396f2a9849a4a"
            "445e0547d31c1623c537df4ba85c70a9884a35bcbf3dfab077e98b0f68135f54",
            "81d4933f8b322ac0cd762c27235ce2b31534e0244a9a2f1fd5e94498d47ff108"
            "790c009cf9e1a348032a7694cb28024cd96d3498361edb1785af752d187ab54b");
}

static void sequences(void)
{
    matches("00112233445566778899aabbccddeeffffeeddccbbaa99887766554433221100", "0f1e2d3c4b5a6978",
            "db43ad9d1e842d1272e4530e276b3f568f8859b3f7cf6d9d2c74fa53808cb515"
            "7a8ebf46ad3dcc4b6c7dadde131784b0120e0e22f6d5f9ffa7407d4a21b695d9",
            "c5dd30bf55612fab9bdd118920c19816470c7f5dcd42325dbbed8c57a56281c1"
            "44cb0f03e81b3004624e0650a1ce5afaf9a7cd8163f6dbd72602257dd96e471e");
}

static void random_key(void)
{
    matches("c46ec1b18ce8a878725a37e780dfb7351f68ed2e194c79fbc6aebee1a667975d", "1ada31d5cf688221",
            "838751b42d8ddd8a3d77f48825a2ba752cf4047cb308a5978ef274973be374c9"
            "6ad848065871417b08f034e681fe46a93f7d5c61d1306614d4aaf257a7cff08b",
            "16f2fda170cc18a4b58a2667ed962774af792a6e7f3c77992540711a7a136d7e"
            "8a2f8d3f93816709d45a3fa5f8ce72fde15be7b841acba3a2abd557228d9fe4f");
}

static void a_seed_is_the_key_and_a_stream_the_nonce(void)
{
    uint8_t zero[8];
    struct chacha c;
    chacha_seed(&c, 0, 1);
    chacha_bytes(&c, zero, sizeof(zero));
    TEST_ASSERT_EQUAL_HEX8(0x2b, zero[0]);
    chacha_seed(&c, 1, 0);
    TEST_ASSERT_EQUAL_HEX64(0x61a94a49a0e95ecfull, chacha_next(&c));
    chacha_seed(&c, 0, 0);
    TEST_ASSERT_EQUAL_UINT32((uint32_t)(0x2fef003eull * 1000 >> 32), chacha_below(&c, 1000));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(all_zero);
    RUN_TEST(one_bit_in_the_key);
    RUN_TEST(one_bit_in_the_nonce);
    RUN_TEST(all_bits);
    RUN_TEST(sequences);
    RUN_TEST(random_key);
    RUN_TEST(a_seed_is_the_key_and_a_stream_the_nonce);
    return UNITY_END();
}
