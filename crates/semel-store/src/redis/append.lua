-- Adds an event to a record's history; none where there is no record. An event written again is one: looked for and
-- added in one step.
--
-- KEYS: record, history
-- ARGV: attempt, what, and the rest of the event
local EVENTS_MAX = 100
local now = clock()
local record = load(KEYS[1])
if not record or is_expired(record, now) then
    return 0
end
for _, packed in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local event = cmsgpack.unpack(packed)
    if event[2] == ARGV[1] and event[3] == ARGV[2] then
        return 0
    end
end
local event = { now }
for _, part in ipairs(ARGV) do
    event[#event + 1] = part
end
redis.call('RPUSH', KEYS[2], cmsgpack.pack(event))
redis.call('LTRIM', KEYS[2], -EVENTS_MAX, -1)
if record[FORGET_AT] < NEVER then
    redis.call('PEXPIREAT', KEYS[2], text(record[FORGET_AT] + MARGIN))
end
return 1
