-- Reads a page of what is open or due, in the order of time and then of names. Writes nothing.
--
-- KEYS: open or due
-- ARGV: time, id (the page begins behind these), limit, 'ripe' (only what lies before now) or 'all'
local now = clock()
local latest = ARGV[4] == 'ripe' and text(now) or '+inf'
local from, id, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local page, offset = { text(now) }, 0
-- Records of one instant are few: what the page before gave of them is passed over.
repeat
    local found = redis.call('ZRANGE', KEYS[1], from, latest, 'BYSCORE', 'LIMIT', offset, limit, 'WITHSCORES')
    for place = 1, #found, 2 do
        local time = text(tonumber(found[place + 1]))
        if #page <= 2 * limit - 1 and (time ~= from or found[place] > id) then
            page[#page + 1], page[#page + 2] = found[place], time
        end
    end
    offset = offset + limit
until #found < 2 * limit or #page >= 2 * limit + 1
return page
