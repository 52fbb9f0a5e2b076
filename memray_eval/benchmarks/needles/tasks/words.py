"""The words that keys, names and prose are made of. No adjective ends in another, no noun begins
with another, so no key is within another key."""

ADJECTIVES = tuple(
    """
        amber ancient arctic autumn azure bashful blazing blissful bold brave breezy bright brisk
        bronze bubbly calm candid careful charming cheerful chilly classic clever cloudy coastal
        copper coral cosmic cozy crimson crispy curious curly daring dashing dazzling decent deep
        delicate dense devoted diligent distant double dreamy dusty eager earnest easy ebony elastic
        elder electric elegant eloquent emerald enormous epic exotic fabled faint faithful famous
        fancy fearless feisty festive fierce fluffy forgotten fragile frank free fresh friendly
        frosty frozen frugal gallant generous gentle giant gifted gilded glad gleaming glossy golden
        graceful grand grateful grave gray green gritty handsome handy happy hardy harmonic hasty
        hazel hearty heavy hidden hollow honest humble hungry husky icy ideal idle immense indigo
        inner ivory jagged jaunty jolly jovial joyful jumbo keen kind knotty lavish lazy leafy lean
        legal limber lilac lively lofty lonely loyal lucid lucky lunar magic marble maroon mellow
        merry mighty mild minty misty modest mossy muddy muffled murky musical mystic naive narrow
        native neat nimble noble noisy nordic normal novel oaken oblong odd olive opal orange
        organic ornate outer oval paisley pale patient peachy pearly pebbly placid plain polar
        polite prime proud pure purple quaint quick quiet rapid rare raspy ready rigid roaming
        robust rosy rough round royal ruby rugged rural rustic rusty sacred sable salty sandy
        sapphire satin scarlet secluded serene shady sharp shiny shy silent silken silver simple
        sincere sleek slender slow smoky smooth snowy sober soft solar solemn solid sparkly speedy
        spry stable steady steep sticky still stony stormy stout sturdy subtle sudden sunny supple
        sweet swift tall tame tangy tawny tender thorny thrifty tidy timid tiny tranquil turquoise
        twilit urban vague valiant vast velvet verdant vibrant violet vivid wandering warm wary wavy
        weary whimsical white wild windy winding wintry wise witty wobbly wooden woolly yearly
        yellow young zany zealous
    """.split()
)
NOUNS = tuple(
    """
        acorn airship almond anchor anvil apron arrow atlas attic badger bagpipe bakery balcony
        bamboo banjo barley basket beacon beetle bicycle blanket blossom bonfire bottle boulder
        bracelet bramble bridge bucket buffalo butter button cabbage cabin cactus camel canal candle
        canoe canyon caravan castle cedar cello cherry chimney cinnamon citadel clarinet clover
        cobweb coconut compass cottage cradle crater cricket crystal curtain cushion cymbal daisy
        dolphin domino donkey dragonfly drawer drum dulcimer eagle easel eclipse elbow elm ember
        engine falcon feather fiddle finch flagpole flute forest fountain fox galaxy galleon gander
        garden garlic gazelle geyser ginger giraffe glacier goblet goose granite grape guitar hammer
        hammock harbor harp hawk hazelnut hedgehog helmet heron hickory honeycomb horizon hourglass
        iceberg iguana inkwell island ivy jacket jaguar jasmine jewel jigsaw jungle juniper kayak
        kettle keyhole kimono kitchen kitten koala lagoon lantern lark lattice lemon leopard lettuce
        library lighthouse lizard lobster locket lotus lynx magnet magpie mandolin mango mantle
        maple marigold market meadow melon mermaid meteor mirror mitten molehill monsoon moose
        mosaic mulberry museum mushroom napkin needle nest nightingale notebook nutmeg oar oasis
        obelisk ocean octopus orchard orchid oriole ostrich otter oyster paddle pagoda palace
        panther papaya parrot pasture peach peacock pebble pelican pendulum pepper petal piano
        pickle pigeon pillow pistachio planet plateau plum pocket pond poppy porcupine prairie
        puddle pumpkin puppet pyramid quail quarry quartz quill quilt rabbit raccoon radish raft
        rainbow raven reef ribbon river robin rocket rooftop rooster saddle saffron sailboat salmon
        sandal scarf scooter seagull shamrock shovel skylark sleigh snail sparrow spindle spoon
        squirrel staircase starfish stream sunflower swallow sycamore tablet tambourine tapestry
        teapot temple terrace thicket thimble thistle thunder tiger timber toffee tomato topaz torch
        tortoise tower trumpet tulip tunnel turnip turtle umbrella unicorn valley vase vessel
        village vineyard viola volcano waffle wagon walnut walrus waterfall weasel whistle willow
        windmill wolf woodpecker wreath yacht yarrow zebra zeppelin zinnia
    """.split()
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONSONANTS, VOWELS = "bdfghklmnprstvz", "aeiou"
