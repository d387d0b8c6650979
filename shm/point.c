#include "point.h"

#ifdef RF_POINTS
rf_point_hook *rf_point_on_hit;
#else
/* An empty translation unit is not C. */
typedef int rf_points_are_off;
#endif
