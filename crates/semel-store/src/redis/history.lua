-- Reads the events of a record since its first claim, oldest first. Writes nothing.
--
-- KEYS: record, history
local now = clock()
local record = load(KEYS[1])
local events = { text(now) }
if not record or is_expired(record, now) then
    return events
end
for _, packed in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local event = cmsgpack.unpack(packed)
    if event[1] >= record[FIRST_AT] then
        event[1] = text(event[1])
        events[#events + 1] = event
    end
end
return events
