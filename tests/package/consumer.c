#include <stdio.h>

#include <ringfence/ringfence.h>

int main(void)
{
    printf("%s: %s\n", rf_version_string(), rf_strerror(RF_OK));
    return 0;
}
