#include "snapshot.h"

bool rf_snapshot_due(const struct rf_map *map)
{
    (void)map;
    return false;
}

rf_status rf_snapshot_take(struct rf_actor *actor, struct rf_logger *logger, rf_detail *detail)
{
    (void)actor;
    (void)logger;
    return rf_refuse(detail, RF_UNSUPPORTED, 0, "snapshots are not there yet");
}

uint32_t rf_snapshot_held_by(const struct rf_map *map)
{
    (void)map;
    return 0;
}
